#!/usr/bin/env python3
"""Spark's Kafka connector, fetched once: prints its jars as the setting `spark.jars` takes them.

Standard library only. On a machine that reaches Maven Central by itself, Spark fetches them too:
`--spark spark.jars.packages=org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from maven_jars import fetched
from state import ServiceError, cache_folder

VERSION = "4.2.0"
POM = Path(__file__).resolve().parent / "spark" / "pom.xml"


def jars() -> Path:
    """Return the folder of jars."""
    into = cache_folder() / f"spark-kafka-{VERSION}"
    return fetched(POM, into, "spark-sql-kafka-0-10_2.13-*.jar", "Spark's Kafka connector (10 MB)")


def main() -> int:
    """Print the jars with commas between them; problems become one message and exit code 1."""
    try:
        print(",".join(sorted(map(str, jars().glob("*.jar")))))
        return 0
    except (ServiceError, OSError) as problem:
        print(problem, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
