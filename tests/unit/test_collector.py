"""The collector's setting, which is the whole interpreter's."""

import gc

import pytest

from duebridge.worker.process import THRESHOLDS, relaxed_collector


def test_collector_is_relaxed_within_and_as_before_after() -> None:
    before = gc.get_threshold()
    with relaxed_collector():
        assert gc.get_threshold() == THRESHOLDS
    assert gc.get_threshold() == before


def test_collector_is_as_before_after_an_error() -> None:
    before = gc.get_threshold()
    with pytest.raises(ValueError, match="broken"), relaxed_collector():
        raise ValueError("broken")
    assert gc.get_threshold() == before
