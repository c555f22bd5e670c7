"""Looks at a cluster: its topics, what is wrong with them, and who may use them."""
