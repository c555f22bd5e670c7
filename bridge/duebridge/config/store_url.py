"""Validates the URL of a delay store; messages omit it, since it may contain a password."""

from urllib.parse import urlsplit

SCHEMES = ("redis://", "rediss://", "redis+cluster://", "rediss+cluster://", "unix://", "embedded:")
_LIKE_REDIS = SCHEMES[:4]


def url_fault(url: str) -> str:
    """Return the fault of a store's URL, or an empty text."""
    if not url.startswith(SCHEMES):
        return f"expected {', '.join(SCHEMES[:-1])} or {SCHEMES[-1]}DIR; got another scheme"
    try:
        is_cut = is_cut_by_password(url)
    except ValueError:
        return "expected redis://[USER:PASSWORD@]HOST:PORT/DB; got one that cannot be read"
    if url.startswith(_LIKE_REDIS) and is_cut:
        return f"expected user and password {PERCENT_ENCODED}"
    return ""


PERCENT_ENCODED = "percent-encoded: %40 for @, %2F for /, %23 for #, %3F for ?"


def is_cut_by_password(url: str) -> bool:
    """Tell whether a raw / or # before the @ ends the server's name; raises `ValueError`."""
    parts = urlsplit(url)
    return "@" in parts.path or bool(parts.fragment)
