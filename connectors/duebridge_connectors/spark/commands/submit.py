"""Entry file for spark-submit: `spark-submit ... submit.py schedule ...`."""

import sys

from duebridge.cli.exits import run_guarded
from duebridge_connectors.spark.commands import spark

if __name__ == "__main__":
    sys.exit(run_guarded(spark))
