"""Urls whose password is not encoded: what is left of it would be taken for a host, and shown."""

from urllib.parse import urlsplit

PERCENT_ENCODED = "percent-encoded: %40 for @, %2F for /, %23 for #, %3F for ?"


def is_cut_by_password(url: str) -> bool:
    """Tell whether a raw / or # before the @ ends the server's name; raises `ValueError`."""
    parts = urlsplit(url)
    return "@" in parts.path or bool(parts.fragment)
