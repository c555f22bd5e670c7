"""The image of the jobs on Spark, as a node runs it: another user, and a read-only root."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from deploy.images.tree import SITE

from tests.deploy.image import Image, said_mb
from tests.spark.topics import Record, opened_topics
from tests.store.servers import redis_server

pytestmark = [pytest.mark.image, pytest.mark.timeout(900)]  # the first build fetches packages
ROWS = 500
CONFIG = """\
version: 1
store: {{url: "redis://127.0.0.1:{port}/0"}}
brokers:
  orders: {{type: kafka, bootstrap_servers: ["${{KAFKA:-127.0.0.1:1}}"]}}
routes:
  reminders: {{target: {{broker: orders, topic: reminders}}}}
"""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A directory with a configuration, whose store answers, and rows to schedule."""
    options = ("--appendonly", "yes", "--maxmemory-policy", "noeviction")
    with redis_server(tmp_path, *options) as port:
        (config := tmp_path / "config").mkdir()
        (config / "duebridge.yaml").write_text(CONFIG.format(port=port), "utf-8")
        rows = "".join(f"{number},hello,1h\n" for number in range(ROWS))
        (config / "rows.csv").write_text(f"id,body,delay\n{rows}", "utf-8")
        yield config


def pending(image: Image, home: Path) -> int:
    code, stats = image.run(home, "stats", "--output", "json")
    assert code == 0, stats
    return int(json.loads(stats)["routes"][0]["pending"])


def test_schedule_in_the_image_stores_every_row(spark_image: Image, home: Path) -> None:
    words = ["spark", "schedule", "reminders", "/etc/duebridge/rows.csv", "--format", "csv"]
    code, shown = spark_image.run(home, *words, "--spark", "spark.master=local[1]")
    assert code == 0, shown
    assert pending(spark_image, home) == ROWS


def test_intake_in_the_image_reads_a_topic_by_the_connector_that_is_in_it(
    spark_image: Image, home: Path, kafka_bootstrap: str
) -> None:
    with opened_topics(kafka_bootstrap) as topics:
        topics.fill(topic := topics.make(), (Record(b"%d" % number) for number in range(ROWS)))
        words = ["spark", "intake", "reminders", topic, "--checkpoint", "/tmp/checkpoint"]  # noqa: S108
        words += ["--column", "delay='1h'", "--spark", "spark.master=local[1]"]
        code, shown = spark_image.run(home, *words, KAFKA=kafka_bootstrap)
    assert code == 0, shown
    assert pending(spark_image, home) == ROWS


def test_bill_of_materials_lists_wheels_debian_packages_and_jars(spark_image: Image) -> None:
    bill = spark_image.bill()
    listed = dict(bill)
    assert spark_image.wheels() <= set(listed)
    status = (spark_image.root / "var/lib/dpkg/status").read_text("utf-8")
    debian = {line.split()[1] for line in status.splitlines() if line.startswith("Package:")}
    assert {f"deb/debian/{name}" for name in debian} <= set(listed)
    jars = list((spark_image.root / SITE / "pyspark/jars").glob("*.jar"))
    assert len([name for name, _ in bill if name.startswith(("maven/", "generic/"))]) == len(jars)
    assert listed["maven/org.apache.spark/spark-sql-kafka-0-10_2.13"] == "4.2.0"


def test_image_is_as_large_as_the_page_says(spark_image: Image) -> None:
    assert spark_image.size_mb() == pytest.approx(said_mb("spark"), rel=0.05)
