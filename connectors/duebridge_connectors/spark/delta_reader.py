"""Delta's reader for Spark: its package, the settings that it needs, and whether a session has it.

Only a session that was made with these settings reads Delta tables. Jobs that write or tidy one use
`deltalake`, which needs neither jars nor settings.
"""

from collections.abc import Mapping

from pyspark.sql import SparkSession

from duebridge.errors import ConfigError

DELTA_PACKAGE = "io.delta:delta-spark_2.13:4.4.0"  # of 4.2.0 reads fail after a checkpoint
EXTENSIONS = "spark.sql.extensions"
_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
_CATALOG = "spark.sql.catalog.spark_catalog"
_SETTINGS = {
    _CATALOG: "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "1",  # 50 tasks by default, for a small log
}


def delta_settings(given: Mapping[str, str]) -> dict[str, str]:
    """Return the settings to add to those given; other extensions stay."""
    others = [each.strip() for each in given.get(EXTENSIONS, "").split(",") if each.strip()]
    extensions = list(dict.fromkeys([*others, _EXTENSION]))
    return {**_SETTINGS, **given, EXTENSIONS: ",".join(extensions)}


def check_delta_reader(spark: SparkSession) -> None:
    """Raise `ConfigError` for a session that cannot read Delta tables."""
    if _EXTENSION not in (spark.conf.get(EXTENSIONS, "") or ""):
        remedy = (
            f"start it with --packages {DELTA_PACKAGE} --conf {EXTENSIONS}={_EXTENSION}"
            f" --conf {_CATALOG}={_SETTINGS[_CATALOG]}"
        )
        raise ConfigError(f"spark: expected a session with Delta's reader; got none: {remedy}")
