"""Links: discount and lambda between neighbouring tokens of the stream."""

from __future__ import annotations

from dataclasses import dataclass, fields

from dagrl.errors import DagrlError


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """Discount and lambda of the three kinds of link between neighbouring tokens, each in 0..1.

    The environment moves on only from round to round, hence 1.0 elsewhere by default; MARFT's own code uses
    one gamma and one lambda for all: `Links.uniform(0.99, 0.95)`.
    """

    gamma: float
    """Discount from a turn to a turn of a later round, and to the bootstrap value at a truncated end."""
    lam: float
    """Lambda from a turn to a turn of a later round."""
    gamma_agent: float = 1.0
    """Discount from a turn to the next turn of the same round."""
    lam_agent: float = 1.0
    """Lambda from a turn to the next turn of the same round."""
    gamma_token: float = 1.0
    """Discount from token to token inside a response."""
    lam_token: float = 1.0
    """Lambda from token to token inside a response."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not 0.0 <= value <= 1.0:
                raise DagrlError(f"{field.name} is {value}", how="give a number from 0 to 1")

    @classmethod
    def uniform(cls, gamma: float, lam: float) -> Links:
        """The same discount and lambda at every link."""
        return cls(gamma=gamma, lam=lam, gamma_agent=gamma, lam_agent=lam, gamma_token=gamma, lam_token=lam)
