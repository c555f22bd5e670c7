"""The report as one page: no script, no network, light and dark."""
