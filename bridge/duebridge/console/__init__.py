"""The console: pages for people on what waits, what falls due and what failed, at `/`."""
