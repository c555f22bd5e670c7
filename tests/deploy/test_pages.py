"""What the pages tell to type before the chart is installed; the rest runs on a cluster."""

import shlex
from pathlib import Path
from uuid import uuid4

import pytest

from tests.deploy.pages import PAGES, block, kafka_topics


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parent.name)
def test_first_command_of_a_page_makes_the_topic(kafka_bootstrap: str, page: Path) -> None:
    line = block(page, "kafka-topics.sh").splitlines()[0]
    topic = f"pages-{uuid4()}"
    given = line.replace("kafka.example:9092", kafka_bootstrap).replace("reminders", topic)
    program, *words = shlex.split(given)
    assert program == "kafka-topics.sh"
    kafka_topics(words)
    where = ["--bootstrap-server", kafka_bootstrap]
    assert f"Topic: {topic}" in kafka_topics([*where, "--describe", "--topic", topic])
    kafka_topics([*where, "--delete", "--topic", topic])
