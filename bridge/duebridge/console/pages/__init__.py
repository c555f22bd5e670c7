"""The pages: each gathers what it shows from the store in one thread call, then renders it."""
