"""Selects and settles dead letters for the `dead` commands."""
