"""The jobs: each is a function of a SparkSession that reads, transforms and writes."""
