"""How the `dead` commands select dead letters, and settle them."""
