"""An operator's view of the store: listings, dead letters, events, checks, purge."""
