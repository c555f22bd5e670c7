"""DataFrame in, DataFrame out: what the jobs compute, with nothing read and nothing written."""
