"""`duebridge` in a process of its own, command after command: their JVM is started once.

Each is the whole of `duebridge.cli.main` with its own session, and what it writes is what a person
would see. Standard output and error go to files, which the JVM has too, and each command has what
was added to them; its exit code comes by a pipe.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

from duebridge.cli import main
from tests.support.command import ENVIRONMENT, Done

JAVA_SAYS = "WARNING: Using incubator modules: jdk.incubator.vector\n"  # when it starts


class Commander:
    """The process, begun; `close` ends it."""

    def __init__(self, home: Path, jars: str) -> None:
        codes, theirs = os.pipe()
        self._codes = os.fdopen(codes)
        self._said = [home / "out", home / "err"]
        out, err = (each.open("ab") for each in self._said)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.commander", str(theirs)],
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=err,
            pass_fds=[theirs],
            text=True,
            env=ENVIRONMENT | {"PYSPARK_SUBMIT_ARGS": f"--jars {jars} pyspark-shell"},
        )
        for each in (out, err):
            each.close()
        os.close(theirs)

    def __call__(self, config: str, *words: str) -> Done:
        """Run one with that configuration to its end."""
        begins = [each.stat().st_size for each in self._said]
        assert self._process.stdin is not None
        print(json.dumps(["--config", config, *words]), file=self._process.stdin, flush=True)
        code = int(self._codes.readline())
        texts = (path.read_bytes()[begin:] for path, begin in zip(self._said, begins, strict=True))
        return Done(code, *(text.decode() for text in texts))

    def close(self) -> None:
        """Let it end as it does when its input is over."""
        self._process.communicate(timeout=60)
        self._codes.close()


def serve(codes: int) -> None:
    """Run what is asked for, a line each, until there is no more."""
    with os.fdopen(codes, "w") as answers:
        for line in sys.stdin:
            sys.argv = ["duebridge", *json.loads(line)]
            code = main()
            sys.stdout.flush()
            print(code, file=answers, flush=True)


if __name__ == "__main__":
    serve(int(sys.argv[1]))
