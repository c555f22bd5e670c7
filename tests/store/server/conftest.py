"""A directory for an embedded server, which ends with the test."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from duebridge.errors import StoreUnavailable
from duebridge.store.server.embedded import stop_embedded


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "store"
    with contextlib.suppress(StoreUnavailable, FileNotFoundError):
        stop_embedded(tmp_path / "store")
