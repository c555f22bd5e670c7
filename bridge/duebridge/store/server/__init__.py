"""The server that holds the store: connections, scripts sent to it, and whether it is fit."""
