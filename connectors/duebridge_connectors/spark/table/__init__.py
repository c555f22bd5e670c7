"""The journal's Delta table: its files, commits, take-over and merges."""
