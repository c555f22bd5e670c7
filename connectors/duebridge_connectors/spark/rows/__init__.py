"""Rows as Spark and Arrow have them: columns, their types, and how they become calls of scripts."""
