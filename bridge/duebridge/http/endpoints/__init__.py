"""The endpoints of the HTTP interface."""
