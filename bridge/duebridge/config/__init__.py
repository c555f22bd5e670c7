"""The configuration: YAML text to checked, frozen models."""
