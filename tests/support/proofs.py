"""What proofs of many runs have in common: the runs on disk, a folder for each, and the exit code.

Every run is a line of a file, so that a proof that was interrupted goes on where it was.
"""

import shutil
import threading
import traceback
from argparse import ArgumentParser
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import msgspec

R = TypeVar("R")


class RunResult(Protocol):
    """What came of a run."""

    @property
    def outcome(self) -> str:
        """`held`, `BROKEN`, or `INVALID`: the fault was not seen to strike."""
        ...


Found = TypeVar("Found", bound=RunResult)


def add_options(parser: ArgumentParser, home: Path, report: Path) -> None:
    parser.add_argument("--anew", action="store_true", help="forget the runs of an earlier proof")
    parser.add_argument("--report", type=Path, default=report)
    parser.add_argument("--home", type=Path, default=home)


class RunFile(Generic[R]):
    """The runs of a proof, and the file that remembers them."""

    def __init__(self, home: Path, kind: type[R], *, anew: bool) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self.path = home / "runs.jsonl"
        if anew:
            self.path.unlink(missing_ok=True)
        lines = self.path.read_bytes() if self.path.exists() else b""
        self.runs = msgspec.json.Decoder(kind).decode_lines(lines)
        self._noting = threading.Lock()

    def note(self, run: R) -> None:
        with self._noting, self.path.open("ab") as file:
            self.runs.append(run)
            file.write(msgspec.json.encode(run) + b"\n")


def run_in(folder: Path, run: Callable[[], Found], failed: Callable[[Exception], Found]) -> Found:
    """Run one in a new folder, which is kept unless it held; `failed` is of one without an end."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    try:
        result = run()
    except Exception as error:  # of the run itself: it proves nothing, and must be seen
        (folder / "error.txt").write_text(traceback.format_exc())
        result = failed(error)
    if result.outcome == "held":
        shutil.rmtree(folder)
    return result


def exit_code(results: Iterable[RunResult], *, is_over: bool) -> int:
    """Return 0 for held, 1 for broken, 2 for too few runs."""
    if "BROKEN" in {each.outcome for each in results}:
        return 1
    return 0 if is_over else 2
