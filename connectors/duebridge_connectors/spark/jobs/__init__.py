"""The jobs: each reads, transforms and writes, as a function of a SparkSession."""
