"""`duebridge dead`: its verbs, and how they select and settle dead envelopes."""
