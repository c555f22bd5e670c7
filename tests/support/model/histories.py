"""Histories on disk: what the processes of a run did to each envelope, and of what commit."""

import os
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

import msgspec

from tests.support.checkout import ROOT
from tests.support.model.history_events import HistoryEvent, Phase, Subject

SUFFIX = ".history.jsonl"


class Historian:
    """Writes one history. A line is handed to the system before `write` returns."""

    def __init__(self, home: Path, name: str) -> None:
        self._file = (home / f"{name}{SUFFIX}").open("ab", buffering=0)
        self._encoder = msgspec.json.Encoder()

    def write(self, events: Iterable[HistoryEvent]) -> None:
        self._file.write(self._encoder.encode_lines(list(events)))

    def note(
        self, subject: Subject, phase: Phase, id: str, *, due_at_ms: int = 0, answer: str = ""
    ) -> None:
        self.write([HistoryEvent(now_ms(), subject, phase, id, due_at_ms, answer)])

    def close(self) -> None:
        self._file.close()


def now_ms() -> int:
    return int(time.time() * 1000)


def read_histories(home: Path) -> list[HistoryEvent]:
    """Return the events of all processes; those of one id are in one thread's order."""
    decoder = msgspec.json.Decoder(HistoryEvent)
    return [
        event
        for path in sorted(home.glob(f"*{SUFFIX}"))
        for event in decoder.decode_lines(path.read_bytes())
    ]


def commit(report: Path, root: Path = ROOT) -> str:
    """Return the commit that is being proved, and whether the tree has changes beside it.

    The report is none: a proof that goes on after it wrote one is still of the same commit.
    """
    command = ["git", "rev-parse", "--short=12", "HEAD"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    compare = ["git", "diff", "--quiet", "HEAD", "--", ".", f":(exclude){report}"]
    is_dirty = subprocess.run(compare, cwd=root).returncode != 0
    return done.stdout.strip() + ("-dirty" if is_dirty else "")


def machine() -> str:
    """Return the machine's size, and not its name."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return f"{os.cpu_count()} cores, {pages / 2**30:.0f} GiB"
