"""A job on a real cluster: a master, two workers, and spark-submit."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pyspark
import pytest

import connectors.spark
from tests.spark.conftest import LATER_MS, World
from tests.store.servers import free_port, wait_until

SPARK = Path(pyspark.__file__).parent
SUBMIT = Path(connectors.spark.__file__).parent / "commands" / "submit.py"
ENVIRONMENT = os.environ | {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
DEPLOY = "org.apache.spark.deploy"
ROWS = 5000


@contextmanager
def daemon(home: Path, name: str, *words: str) -> Iterator[None]:
    """Run a part of Spark until the end of the block."""
    command = [str(SPARK / "bin" / "spark-class"), *words]
    with (home / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(command, env=ENVIRONMENT, stdout=log, stderr=log, cwd=home)
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)


class Cluster:
    """A standalone master; `url` is for spark-submit."""

    def __init__(self, port: int, web_port: int) -> None:
        self.url = f"spark://127.0.0.1:{port}"
        self._web_port = web_port

    def state(self) -> dict[str, Any]:
        """What the master knows; nothing while it does not answer."""
        with closing(HTTPConnection("127.0.0.1", self._web_port, timeout=5)) as web:
            try:
                web.request("GET", "/json/")
                found: dict[str, Any] = json.load(web.getresponse())
            except (OSError, ValueError):  # its pages come up one after another
                return {}
            return found

    def workers(self) -> int:
        return int(self.state().get("aliveworkers", 0))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    home = tmp_path_factory.mktemp("cluster")
    port, web_port = free_port(), free_port()
    here = ("--host", "127.0.0.1")
    found = Cluster(port, web_port)
    with ExitStack() as stack:
        web = ("--port", str(port), "--webui-port", str(web_port))
        stack.enter_context(daemon(home, "master", f"{DEPLOY}.master.Master", *here, *web))
        wait_until(found.state, f"the master, see {home}", within_s=60)
        size = ("--cores", "1", "--memory", "700m", "--webui-port", "0", "--work-dir", str(home))
        for number in range(2):
            name = f"worker-{number}"
            worker = daemon(home, name, f"{DEPLOY}.worker.Worker", *here, *size, found.url)
            stack.enter_context(worker)
        wait_until(lambda: found.workers() == 2, f"two workers, see {home}", within_s=60)
        yield found


@pytest.mark.timeout(600)
def test_submit_a_job_to_a_cluster_stores_every_row_once(
    cluster: Cluster, world: World, tmp_path: Path
) -> None:
    orders = tmp_path / "orders.csv"
    orders.write_text("number\n" + "".join(f"{number}\n" for number in range(ROWS)))
    words = [str(SPARK / "bin" / "spark-submit"), "--master", cluster.url]
    words += ["--executor-memory", "512m", "--conf", f"spark.pyspark.python={sys.executable}"]
    words += [str(SUBMIT), "schedule", "split", str(orders), "--format", "csv"]
    words += ["--column", "id=number", "--column", "body=concat('order ', number)"]
    words += ["--column", f"due_at={LATER_MS} + cast(number as bigint)"]
    words += ["--config", world.config, "--output", "json"]
    done = subprocess.run(words, env=ENVIRONMENT, capture_output=True, timeout=500, cwd=tmp_path)
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    assert json.loads(done.stdout)["accepted"] == ROWS
    assert sum(len(world.ids("split", number=number)) for number in range(4)) == ROWS
    (finished,) = cluster.state()["completedapps"]
    assert finished["cores"] == 2, "both workers had a part in it"
