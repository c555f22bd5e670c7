"""The examples, each in a copy of its folder, on the real services."""

import secrets
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pika
import pytest
from kafka.admin import KafkaAdminClient

from tests.programs.site import Open, Site
from tests.support.checkout import ROOT


@pytest.fixture(scope="session")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copies of the folders, so that what a language installs is installed once."""
    copied = tmp_path_factory.mktemp("examples") / "examples"
    return Path(shutil.copytree(ROOT / "examples", copied))


@pytest.fixture
def open_site(redis_url: str) -> Iterator[Open]:
    """Give what opens a `Site` in a folder, with a namespace of its own."""
    with ExitStack() as until:

        def open_one(home: Path, **settings: str) -> Site:
            store = {"REDIS_URL": redis_url, "NAMESPACE": f"program-{secrets.token_hex(6)}"}
            return Site(home, {**store, **settings}, until)

        yield open_one


@pytest.fixture
def name() -> str:
    return f"program-{secrets.token_hex(4)}"


@pytest.fixture
def rabbit(rabbitmq_url: str, name: str) -> Iterator[Any]:
    """A channel of the test's own; at the end what bears the test's name is gone."""
    with pika.BlockingConnection(pika.URLParameters(rabbitmq_url)) as connection:
        channel = connection.channel()
        yield channel
        for queue in ("", ".mail", ".intake", ".later", ".refused", ".dead"):
            channel.queue_delete(f"{name}{queue}")
        for exchange in (name, f"{name}.due"):
            channel.exchange_delete(exchange)


@pytest.fixture
def topics(kafka_bootstrap: str, name: str) -> Iterator[KafkaAdminClient]:
    """The topics NAME, NAME-later and NAME-dlt; at the end all that begin so are gone."""
    with closing(KafkaAdminClient(bootstrap_servers=kafka_bootstrap)) as admin:
        settings = {"num_partitions": 1, "replication_factor": 1}
        wanted = (name, f"{name}-later", f"{name}-dlt")
        admin.create_topics(dict.fromkeys(wanted, settings), wait_for_metadata=True)
        yield admin
        admin.delete_topics([each for each in admin.list_topics() if each.startswith(name)])
