"""Addresses of servers that speak for an agent: what one may look like, and as it is used."""

from __future__ import annotations

from urllib.parse import urlsplit

DEFAULT_PATH = "/v1"
"""Where servers of OpenAI's kind have their endpoints."""


def fault_of(url: str) -> str | None:
    """What is wrong with an address; None where nothing is.

    >>> fault_of("http://127.0.0.1:8000/v1"), fault_of("127.0.0.1:8000")
    (None, 'begins with neither http:// nor https://')
    """
    try:
        parts = urlsplit(url)
        has_host = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError as error:
        return str(error)
    if parts.scheme not in ("http", "https"):
        return "begins with neither http:// nor https://"
    if not has_host:
        return "names no host"
    if parts.username is not None or parts.password is not None:
        return "holds a name or a password, which would stand in every run folder; give a key by OPENAI_API_KEY"
    if parts.query or parts.fragment:
        return "has a query or a fragment; give the address that ends in /v1"
    return None


def base_url(url: str) -> str:
    """The address that endpoints are added to; without a path of its own it is /v1.

    >>> base_url("http://127.0.0.1:8000"), base_url("https://host/api/")
    ('http://127.0.0.1:8000/v1', 'https://host/api')
    """
    trimmed = url.rstrip("/")
    return trimmed if urlsplit(trimmed).path else trimmed + DEFAULT_PATH
