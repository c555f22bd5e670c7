"""The paths to the brokers: lanes, their windows, and the health of each target."""
