"""A thread of Python's own is no reason for Spark to know no `duebridge`."""

from concurrent.futures import ThreadPoolExecutor

from pyspark.sql import SparkSession

from duebridge_connectors.spark import register
from duebridge_connectors.spark.loading import write_envelopes
from tests.spark.conftest import LATER_MS, World


def test_write_and_read_in_a_thread_of_its_own_know_the_format(
    spark: SparkSession, world: World
) -> None:
    frame = spark.createDataFrame([("a", "b", LATER_MS)], "id string, body string, due_at bigint")
    with ThreadPoolExecutor(1) as thread:
        written = thread.submit(write_envelopes, frame, **world.options("plain"))
        assert written.result().accepted == 1
    with ThreadPoolExecutor(1) as thread:
        thread.submit(register, spark).result()
        reader = spark.read.format("duebridge").option("config", world.config)
        assert thread.submit(lambda: reader.load().count()).result() == 1
