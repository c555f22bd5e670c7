"""A driver that Ctrl-C or a kill ends, and each job run again: nothing lost or twice."""

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JNetworkError

from duebridge_connectors.spark.cold.commit_log import ColdLog
from duebridge_connectors.spark.cold.tier import Tier
from duebridge_connectors.spark.jobs.demote import run_demote
from duebridge_connectors.spark.jobs.journal import read_journal
from duebridge_connectors.spark.session import deferred_interrupts, quiet_logs
from tests.spark.cold_route import ColdRoute
from tests.spark.driver import (
    JOURNAL,
    TOLD_WITHIN_S,
    Jobs,
    all_due_in_a_month,
    has_files,
    prepared,
)
from tests.spark.test_replay import dead
from tests.spark.world import LATER_MS, Sent, Topics, World
from tests.support.command import ENVIRONMENT
from tests.support.servers import wait_until
from tests.support.spark.launch import OF_COMMANDS

ROWS = 800  # of each job: at the driver's rate 400 s, longer than the test waits
LOG_SHOWN = 20_000  # characters, of the driver that did not get there
BEGUN = 20  # so many are through, at least, when it is killed
SLOW = ("plain", "split", "open", "cold")  # routes of schedule, intake, replay and hydrate
IDS = [f"i{number:04d}" for number in range(ROWS)]


@pytest.mark.long
@pytest.mark.timeout(1500)  # all jobs, and most of them twice
def test_every_job_killed_in_the_middle_and_run_again_loses_nothing_and_repeats_nothing(
    world: World, topics: Topics, kafka_jars: str
) -> None:
    home = world.home
    rows = {"id": IDS, "body": IDS, "due_at": [LATER_MS] * ROWS}  # each process has its LATER_MS
    pq.write_table(pa.table(rows), home / "rows.parquet")
    world.schedule("cold", *IDS)
    assert run_demote(world.spark, config=world.config, route="cold").removed == ROWS
    world.schedule("frozen", *IDS)
    topic, letters = topics.make(), topics.make()
    topics.fill(topic, (Sent(name.encode()) for name in IDS))
    topics.fill(letters, dead(*IDS, route="open"))
    with killed_driver(world, topic, letters, kafka_jars) as driver:
        frozen = ColdLog(f"{home}/cold", "frozen")
        driver.wait_until(lambda: is_begun(world), f"{BEGUN} of {SLOW}")
        driver.wait_until(lambda: frozen.state().unfinished, "demote")
        (home / "observed").touch()
        driver.wait_until(lambda: is_reported(home), "journal and report")
    before = {route: len(world.ids(route)) for route in SLOW}
    assert all(BEGUN <= count < ROWS for count in before.values()), before
    assert frozen.state().unfinished, "demote was over"
    delivered = world.deliver("split", 100)  # what is gone already is not scheduled again
    assert delivered
    run_again(prepared(world.spark, world.config, home, topic, letters))
    left = world.ids("split") | world.ids("split", "ready")
    assert (len(left), left & delivered) == (ROWS - len(delivered), set())
    assert all(len(world.ids(route)) == ROWS for route in ("plain", "open", "cold"))
    assert world.ids("frozen") == set()
    assert ColdRoute(world, pytest.MonkeyPatch(), "frozen").ids() == IDS
    accepted = read_journal(world.spark, str(home / "journal")).where("kind = 'accepted'")
    assert dict(accepted.groupBy("route").count().collect()) == {
        **dict.fromkeys((*SLOW, "frozen"), ROWS),
        "cold": 2 * ROWS,  # before it was cold, and when it came back
    }


class Driver(NamedTuple):
    """The process of the jobs; as text, the end of its log."""

    process: "subprocess.Popen[bytes]"
    log: Path

    def wait_until(self, is_true: Callable[[], object], what: str) -> None:
        """Return once it is true; fails at the deadline, or if the process ends before."""
        wait_until(lambda: self._is_alive() and is_true(), f"{what} of {self}", TOLD_WITHIN_S)

    def _is_alive(self) -> bool:
        assert self.process.poll() is None, str(self)
        return True

    def __str__(self) -> str:
        return f"the driver, which wrote:\n{self.log.read_text()[-LOG_SHOWN:]}"


@contextmanager
def killed_driver(world: World, *words: str) -> Iterator[Driver]:
    """Run the driver, which dies at the end of the block."""
    program = [sys.executable, "-m", "tests.spark.driver", world.config, str(world.home), *words]
    path, env = world.home / "driver.log", ENVIRONMENT | OF_COMMANDS
    with path.open("wb") as log:
        driver = subprocess.Popen(program, stdout=log, stderr=log, env=env, start_new_session=True)
    try:
        yield Driver(driver, path)
    finally:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()


def run_again(jobs: Jobs) -> None:
    """Do what anybody does whose driver was killed; each job finds what the killed one stored."""
    for done in (jobs.schedule(), jobs.intake().rows, jobs.replay().rows[0]):
        assert done.accepted + done.duplicate == ROWS
        assert done.duplicate > 0
    with pytest.MonkeyPatch.context() as later:
        later.setattr(Tier, "boundary_ms", all_due_in_a_month)
        back = jobs.hydrate()
    assert (back.accepted + back.duplicate, back.left) == (ROWS, 0)
    for job in (jobs.demote, jobs.journal, jobs.reconcile, jobs.report):
        job()


def is_reported(home: Path) -> bool:
    return has_files(home, JOURNAL) and has_files(home, "report/report.html")


def is_begun(world: World) -> bool:
    return all(world.count(route) >= BEGUN for route in SLOW)


def start(reached: list[str]) -> None:
    with deferred_interrupts():
        signal.raise_signal(signal.SIGINT)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # as Spark sets one of its own
        reached.append("the end")


def test_ctrl_c_while_a_session_starts_is_heard_once_it_has() -> None:
    before = signal.getsignal(signal.SIGINT)
    reached: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        start(reached)
    assert reached == ["the end"]
    assert signal.getsignal(signal.SIGINT) is before


def test_start_that_nobody_interrupts_ends_as_it_would_anyway() -> None:
    with deferred_interrupts():
        pass
    with pytest.raises(ValueError, match="no Java"), deferred_interrupts():
        raise ValueError("no Java")


def test_call_that_ctrl_c_ended_is_not_logged_and_all_else_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with quiet_logs():
        logging.getLogger().error("KeyboardInterrupt while sending command.")
        logging.getLogger("py4j.clientserver").error("something else")
    logging.getLogger().error("KeyboardInterrupt while sending command.")
    assert [record.name for record in caplog.records] == ["py4j.clientserver", "root"]


@pytest.mark.parametrize(
    ("cause", "expected"),
    [(RuntimeError("reentrant call inside <_io.BufferedReader name=4>"), 0), (OSError("gone"), 1)],
)
def test_call_that_spark_makes_at_ctrl_c_within_another_is_not_logged(
    caplog: pytest.LogCaptureFixture, cause: Exception, expected: int
) -> None:
    with quiet_logs():
        try:
            raise Py4JNetworkError("Error while sending or receiving", cause)
        except Py4JNetworkError:
            logging.getLogger().exception("Exception while sending command.")  # as py4j does
    assert len(caplog.records) == expected
