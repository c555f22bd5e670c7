"""The HTTP interface: envelopes in, one or many, and what the store says of them."""
