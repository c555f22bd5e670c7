"""Ctrl-C around a session: heard once it may be, and never answered with a traceback."""

import logging
import signal

import pytest

from duebridge_connectors.spark.session import deferred_interrupts, quiet_py4j


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
    with quiet_py4j():
        logging.getLogger().error("KeyboardInterrupt while sending command.")
        logging.getLogger("py4j.clientserver").error("something else")
    logging.getLogger().error("KeyboardInterrupt while sending command.")
    assert [record.name for record in caplog.records] == ["py4j.clientserver", "root"]
