"""A session made the one of this thread: by that alone Spark finds data sources of Python."""

from typing import Any

from pyspark.sql import SparkSession


def activated(spark: SparkSession) -> SparkSession:
    """Return the session, active in the thread that calls.

    Spark looks a format up in its thread's active session, and a thread that Python began has
    none: `format("duebridge")` would be unknown there, registered or not.
    """
    session: Any = getattr(spark, "_jsparkSession", None)  # a client of Spark Connect has none
    if session is not None:
        jvm: Any = spark._jvm
        jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(session)
    return spark
