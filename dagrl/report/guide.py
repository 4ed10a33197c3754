"""Guide: what is told of one metric, and the sections that metrics are shown in."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Guide:
    """One metric or a family of metrics."""

    title: str
    meaning: str
    section: str
    """Heading under which it is shown; one of `SECTIONS`."""
    healthy: str = ""
    """The healthy range in words, and what to do outside of it; empty where any value can be fine."""
    low: float | None = None
    high: float | None = None
    """Bounds of the healthy range in the metric's unit; None where it is open or cannot be said in general."""
    unit: str = ""


HEADLINE = "Does it learn?"
POLICY = "Policy"
CRITIC = "Critic and advantages"
TRAJECTORIES = "Conversations"
LEDGER = "Books"
SPEED = "Time"
OTHER = "Everything else"
SECTIONS = (HEADLINE, POLICY, CRITIC, TRAJECTORIES, LEDGER, SPEED, OTHER)
"""In the order of the page."""
