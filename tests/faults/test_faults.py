"""Faults on real processes; every accepted id is accounted for by reading the broker back.

A scenario counts only if messages were in flight when the fault struck and its effect was seen.
"""

import signal

import pytest

from tests.faults.rig import Rig, pause

COUNT = 6000
COUNT_WITHOUT_FAULT = 100_000
WINDOW = 1000  # worker.in_flight of the rig: what one fault may lawfully repeat

pytestmark = pytest.mark.timeout(180)


def test_run_without_a_fault_delivers_each_exactly_once(rig: Rig) -> None:
    rig.start_worker()
    rig.start_worker()
    rig.schedule(COUNT_WITHOUT_FAULT, over_s=5)
    verdict = rig.verdict()
    assert verdict.holds, verdict.lost[:5]
    counts = (verdict.delivered, verdict.duplicate_copies, verdict.dead, len(verdict.early))
    assert counts == (COUNT_WITHOUT_FAULT, 0, 0, 0)


def test_kill_worker_in_mid_flight_loses_nothing(rig: Rig) -> None:
    victim = rig.start_worker()
    rig.schedule(COUNT, over_s=2)
    rig.wait_in_flight()
    victim.kill()
    victim.wait()
    assert rig.stats().poll.unack > 0
    rig.start_worker()
    verdict = rig.verdict()
    assert verdict.holds, verdict
    assert verdict.delivered == COUNT
    assert verdict.duplicate_copies <= WINDOW
    assert verdict.dead == 0


def test_freeze_worker_beyond_its_lease_loses_nothing(rig: Rig) -> None:
    frozen = rig.start_worker()
    rig.schedule(COUNT, over_s=2)
    rig.wait_in_flight()
    frozen.send_signal(signal.SIGSTOP)
    assert rig.stats().poll.unack > 0
    rig.start_worker()
    rig.wait_empty()
    frozen.send_signal(signal.SIGCONT)
    rig.wait(lambda: rig.logged("lease_lost") > 0, "the frozen worker to find its lease lost")
    verdict = rig.verdict()
    assert verdict.holds, verdict
    assert verdict.delivered == COUNT
    assert verdict.duplicate_copies <= WINDOW


def test_terminate_worker_under_load_leaves_nothing_in_unack(rig: Rig) -> None:
    worker = rig.start_worker()
    rig.schedule(COUNT, over_s=2)
    rig.wait_in_flight()
    worker.terminate()
    assert worker.wait(timeout=20) == 0
    poll = rig.stats().poll
    assert poll.unack == 0
    assert poll.pending + poll.ready > 0
    rig.start_worker()
    verdict = rig.verdict()
    assert verdict.holds, verdict
    assert (verdict.delivered, verdict.duplicate_copies) == (COUNT, 0)


def test_restart_store_under_load_loses_nothing(rig: Rig) -> None:
    rig.start_worker()
    rig.schedule(COUNT, over_s=2)
    rig.wait_in_flight()
    rig.services.signal("redis", signal.SIGKILL)
    rig.wait(lambda: rig.logged("store_unavailable") > 0, "the worker to miss the store")
    rig.services.up("redis")
    verdict = rig.verdict()
    assert verdict.holds, verdict
    assert verdict.delivered == COUNT
    assert verdict.duplicate_copies <= WINDOW


def test_flush_scripts_under_load_is_not_noticed(rig: Rig) -> None:
    rig.start_worker()
    rig.schedule(COUNT, over_s=2)
    rig.wait_in_flight()
    flushes = 0
    while rig.stats().poll.pending:
        rig.connection.client.script_flush()
        flushes += 1
        pause()
    verdict = rig.verdict()
    assert flushes > 5
    assert verdict.holds, verdict
    assert (verdict.delivered, verdict.duplicate_copies) == (COUNT, 0)
    assert rig.logged("error") == 0


def test_stop_broker_longer_than_the_publish_deadline_loses_nothing(rig: Rig) -> None:
    rig.start_worker()
    rig.schedule(COUNT, over_s=2)
    rig.wait_in_flight()
    with rig.services.frozen(rig.broker.service):
        rig.wait(lambda: rig.logged("lane_stopped") > 0, "the lane to stop")
        assert rig.stats().poll.dead == 0
    verdict = rig.verdict()
    assert verdict.holds, verdict
    assert (verdict.delivered, verdict.dead) == (COUNT, 0)
    assert verdict.duplicate_copies <= WINDOW
