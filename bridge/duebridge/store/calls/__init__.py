"""The calls of a shard's scripts, by what they are about; `DelayStore` has all of them."""
