"""The cold envelopes of a route, for those who look: see `duebridge.cold_rows`."""

from duebridge.cold_rows import ColdRow, ColdRows

__all__ = ["ColdRow", "ColdRows"]
