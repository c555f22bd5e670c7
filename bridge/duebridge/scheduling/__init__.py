"""Schedules envelopes of a route, within all that each of them may end as."""
