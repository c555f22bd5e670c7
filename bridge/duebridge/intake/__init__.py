"""The intakes of a process: what brokers hold for later goes into the store."""
