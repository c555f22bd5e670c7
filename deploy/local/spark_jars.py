#!/usr/bin/env python3
"""Spark's Kafka connector, fetched once: prints its jars as the setting `spark.jars` takes them.

Standard library only. On a machine that reaches Maven Central by itself, Spark fetches them too:
`--spark spark.jars.packages=org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from maven_jars import fetched
from state import cache_folder, print_found

POM = Path(__file__).resolve().parent / "spark" / "pom.xml"
PROOF, WHAT = "spark-sql-kafka-0-10_2.13-*.jar", "Spark's Kafka connector (10 MB)"


def jars() -> str:
    """Return the paths with commas between them."""
    folder = fetched(POM, cache_folder() / "spark-kafka-4.2.0", PROOF, WHAT)
    return ",".join(sorted(map(str, folder.glob("*.jar"))))


def main() -> int:
    """Print them."""
    return print_found(jars)


if __name__ == "__main__":
    sys.exit(main())
