"""Which urls name a delay store; a refusal shows nothing of one, since it may hold a password."""

from urllib.parse import urlsplit

SCHEMES = ("redis://", "rediss://", "redis+cluster://", "rediss+cluster://", "unix://", "embedded:")
_LIKE_REDIS = SCHEMES[:4]


def url_fault(url: str) -> str:
    """Return what was expected of a store's url, or nothing where a store could be meant.

    A raw / or # in a password would end the server's name before it: what is left of the password
    would be looked up as a host, and shown in the error.
    """
    if not url.startswith(SCHEMES):
        return f"expected {', '.join(SCHEMES[:-1])} or {SCHEMES[-1]}DIR; got another scheme"
    try:
        parts = urlsplit(url)
    except ValueError:
        return "expected redis://[USER:PASSWORD@]HOST:PORT/DB; got one that cannot be read"
    if url.startswith(_LIKE_REDIS) and ("@" in parts.path or parts.fragment):
        encoded = "%40 for @, %2F for /, %23 for #, %3F for ?"
        return f"expected user and password percent-encoded: {encoded}"
    return ""
