"""What the paths of the HTTP interface do."""
