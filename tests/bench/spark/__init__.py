"""What the pipeline on Spark costs: `python -m tests.bench.spark NAME --rows N`, a file each."""
