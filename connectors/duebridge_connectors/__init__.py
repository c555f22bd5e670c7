"""The edges of the bridge: one package per broker, found by entry point, never imported by it."""
