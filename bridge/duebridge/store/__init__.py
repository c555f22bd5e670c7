"""The delay store: the only part of duebridge that speaks to Redis, and the only home of truth."""
