"""Origins of web pages, as browsers name them (RFC 6454)."""

from urllib.parse import urlsplit


def host_of(origin: str) -> str | None:
    """Return the host and port of an origin; None for a text that is no address."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None
