"""A job on a real cluster: a master, three workers, and spark-submit."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import pyspark
import pytest

import duebridge_connectors.spark
from tests.spark.cluster import on_cluster, on_executors
from tests.spark.source.test_rows import rejected
from tests.spark.world import LATER_MS, World
from tests.support.servers import free_port, wait_until
from tests.support.spark.launch import OF_COMMANDS, OF_ONE_JOB, OF_PYTHON, SETTINGS

SPARK = Path(pyspark.__file__).parent
SUBMIT = Path(duebridge_connectors.spark.__file__).parent / "commands" / "submit.py"
ENVIRONMENT = {
    **(os.environ | OF_COMMANDS),
    "SPARK_DAEMON_JAVA_OPTS": OF_ONE_JOB,
    "SPARK_LOCAL_IP": "127.0.0.1",
}
OF_JOBS = {
    **SETTINGS,
    "spark.pyspark.python": OF_PYTHON["PYSPARK_PYTHON"],
    "spark.pyspark.driver.python": sys.executable,
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": OF_ONE_JOB,
}
# On two of the workers: one has the memory of one.
TWO_EXECUTORS = {"spark.executor.cores": "1", "spark.cores.max": "2"}
SUBMITTED = "duebridge schedule"  # what the master calls it
DEPLOY = "org.apache.spark.deploy"
ROWS = 5000
SHARD_ROWS = 300_000  # six slices of 50,000, one for each core
FILE_ROWS = 40_000  # four row groups, which tasks share
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.minTaskRuntime": "1s",
}

pytestmark = pytest.mark.long


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


def on(host: int) -> tuple[str, str]:
    """Name a host of its own for each worker: Spark repeats no task where it already runs."""
    return ("--host", f"127.0.0.{host}")


@contextmanager
def started(home: Path, workers: int, cores: int) -> Iterator[Cluster]:
    """Run a master and its workers until the end of the block."""
    port, web_port = free_port(), free_port()
    found = Cluster(port, web_port)
    with ExitStack() as stack:
        web = ("--port", str(port), "--webui-port", str(web_port))
        stack.enter_context(daemon(home, "master", f"{DEPLOY}.master.Master", *on(1), *web))
        wait_until(found.state, f"the master, see {home}", within_s=120)
        size = ("--cores", str(cores), "--memory", "700m", "--webui-port", "0")
        for number in range(workers):
            name = f"worker-{number}"
            words = (f"{DEPLOY}.worker.Worker", *on(number + 1), *size)
            more = ("--work-dir", str(home), found.url)
            stack.enter_context(daemon(home, name, *words, *more))
        wait_until(lambda: found.workers() == workers, f"the workers, see {home}", within_s=240)
        yield found


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with started(tmp_path_factory.mktemp("cluster"), workers=3, cores=2) as found:
        yield found


def submitted(cluster: Cluster, home: Path, *words: str, **settings: str) -> Any:
    """Run spark-submit to its end; returns the object that was printed."""
    program = [str(SPARK / "bin" / "spark-submit"), "--master", cluster.url]
    for name, value in (OF_JOBS | settings).items():
        program += ["--conf", f"{name}={value}"]
    done = subprocess.run(
        [*program, *words], env=ENVIRONMENT, capture_output=True, timeout=1500, cwd=home
    )
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_submit_a_job_to_a_cluster_stores_every_row_once(
    cluster: Cluster, world: World, tmp_path: Path
) -> None:
    orders = tmp_path / "orders.csv"
    orders.write_text("number\n" + "".join(f"{number}\n" for number in range(ROWS)))
    words = [str(SUBMIT), "schedule", "split", str(orders), "--format", "csv"]
    words += ["--column", "id=number", "--column", "body=concat('order ', number)"]
    words += ["--column", f"due_at={LATER_MS} + cast(number as bigint)"]
    words += ["--config", world.config, "--output", "json"]
    assert submitted(cluster, tmp_path, *words, **TWO_EXECUTORS)["accepted"] == ROWS
    assert len(world.ids("split")) == ROWS
    ended = [app for app in cluster.state()["completedapps"] if app["name"] == SUBMITTED]
    assert [app["cores"] for app in ended] == [2], "two workers had a part in it"


def test_jobs_on_a_cluster_that_loses_an_executor_and_speculates_count_every_row_once(
    cluster: Cluster, world: World, tmp_path: Path
) -> None:
    (tmp_path / "home").mkdir()
    words = [str(Path(on_cluster.__file__)), world.config, str(tmp_path / "home"), str(ROWS)]
    done = submitted(cluster, tmp_path, *words, **SPECULATION, **TWO_EXECUTORS)
    broken = {each.name for each in (tmp_path / "home").iterdir() if each.is_file()}
    assert broken == {"killed", "failed-1", "failed-4", "dawdled", "speculated"}
    far, refused = ROWS // 2, ROWS // 100
    said = done["schedule"]
    assert said["accepted"] + said["duplicate"] == ROWS - refused
    assert said["refused"] == refused == len(rejected(tmp_path / "home" / "rejects"))
    assert (done["demote"]["removed"], done["demote"]["void"]) == (far, 0)
    assert done["hydrate"]["accepted"] + done["hydrate"]["duplicate"] == far
    assert done["read"] == len(world.ids("cold"))
    assert done["read"] == ROWS - refused
    assert done["journal"]["rows"] == ROWS - refused + 2 * far, "demoted, and accepted once more"


def tasks_of(log: Path, group: str) -> list[dict[str, Any]]:
    """The tasks of a group of jobs, as Spark's event log has them."""
    files = sorted(log.rglob("events_*"))
    events = [json.loads(line) for path in files for line in path.read_text().splitlines()]
    stages = {
        stage
        for event in events
        if event["Event"] == "SparkListenerJobStart"
        and event["Properties"].get("spark.jobGroup.id") == group
        for stage in event["Stage IDs"]
    }
    ended = [event for event in events if event["Event"] == "SparkListenerTaskEnd"]
    return [event["Task Info"] for event in ended if event["Stage ID"] in stages]


def most_at_once(tasks: list[dict[str, Any]]) -> int:
    began = [task["Launch Time"] for task in tasks]
    return max(
        sum(task["Launch Time"] <= at < task["Finish Time"] for task in tasks) for at in began
    )


def logged(log: Path) -> dict[str, str]:
    """The settings of an application that logs its events to a new directory."""
    log.mkdir()
    return {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": log.as_uri(),
        "spark.eventLog.compress": "false",
    }


class Turns(NamedTuple):
    """What the turns of reading and hydrating gave, and Spark's log of them."""

    done: dict[str, list[dict[str, float]]]
    log: Path


@pytest.fixture(scope="module")
def turns(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory, redis_url: str) -> Turns:
    """Both in one session: that of three executors costs more than they do."""
    home = tmp_path_factory.mktemp("turns")
    world = World(home, redis_url, no_session)
    words = [str(Path(on_executors.__file__)), world.config, str(SHARD_ROWS), str(FILE_ROWS)]
    try:
        return Turns(submitted(cluster, home, *words, **logged(home / "log")), home / "log")
    finally:
        world.delete()


def no_session() -> NoReturn:
    raise AssertionError("the session is that of spark-submit")


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("what", "count"), [("read", SHARD_ROWS), ("hydrate", FILE_ROWS)])
def test_job_over_one_shard_or_file_on_three_executors_uses_them_all_at_the_same_cost(
    turns: Turns, what: str, count: int
) -> None:
    tasks = tasks_of(turns.log, f"{what} 2")
    at_once, executors = most_at_once(tasks), {task["Executor ID"] for task in tasks}
    _, few, whole = done = turns.done[what]
    print(f"{len(tasks)} tasks, {at_once} at once, {len(executors)} executors: {done}")  # noqa: T201
    assert whole["rows"] == count
    assert at_once >= 4
    assert len(executors) == 3
    assert whole["cpu_us"] < 1.5 * few["cpu_us"], "a row costs the same, however many there are"
