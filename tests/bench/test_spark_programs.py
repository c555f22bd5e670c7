"""What readers of a cold tier touch after many nights: counted, since clocks tell of other work."""

from pathlib import Path

import pytest

from duebridge_connectors.spark.cold import cold_reader
from duebridge_connectors.spark.cold.commit_log import STATE_EVERY, ColdLog
from tests.bench.spark import cold_year

NIGHTS, ROWS = 12, 20


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> ColdLog:
    made = ColdLog(str(tmp_path_factory.mktemp("year")), "cold")
    for day in range(NIGHTS):
        cold_year.night(made, day, ROWS, 2)
    return made


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The Parquet files that are read."""
    found: list[str] = []
    read_groups = cold_reader.read_groups

    def noting(files: object, path: str, *given: object) -> object:
        found.append(path)
        return read_groups(files, path, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(cold_reader, "read_groups", noting)
    return found


@pytest.mark.parametrize("day", [0, NIGHTS // 2, NIGHTS - 1])
def test_get_after_many_nights_reads_the_file_of_its_id_and_the_lists(
    log: ColdLog, opened: list[str], day: int
) -> None:
    home = str(Path(log.root).parent)
    state = log.state()
    late = ROWS - 1  # of the rows of a night, sorted by due: still cold
    cold_year.get(home, f"b{day}-{late}")
    lists = [path for path in opened if "pulled=" in path]
    assert len(lists) == len(state.pulled)
    assert len(opened) - len(lists) <= 2, "another file's filter took the id for its own"
    opened.clear()
    cold_year.get(home, "absent")
    assert len(opened) <= 1


def test_state_after_many_nights_reads_the_entries_since_the_last_state(
    log: ColdLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    decoded = ColdLog._decoded

    def noting(self: ColdLog, name: str, kind: type[object]) -> object:
        read.append(name)
        return decoded(self, name, kind)

    monkeypatch.setattr(ColdLog, "_decoded", noting)
    log.state()
    assert 0 < len(read) <= STATE_EVERY
    assert len(log.numbers()) > STATE_EVERY, "else nothing is shown"


def test_files_after_many_nights_are_few(log: ColdLog) -> None:
    state = log.state()
    assert len(state.files) < NIGHTS
    assert len(state.pulled) < NIGHTS
