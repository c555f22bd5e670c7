"""A connector for duebridge in a distribution of its own: files instead of a broker."""
