"""Parses the YAML configuration into validated, frozen models."""
