"""Programs that send a part of the flights through the intakes: they know the brokers alone."""

import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from subprocess import Popen

from duebridge.envelope import Envelope

HOME = Path(__file__).with_name("senders")
SENT_WITHIN_S = 30.0


class Program:
    """One such program, from its start until it has sent everything."""

    def __init__(self, name: str, *address: str) -> None:
        self._process: Popen[str] = Popen(
            [sys.executable, str(HOME / name), *address],
            stdin=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C is ours alone
        )

    def send(self, envelopes: Iterable[Envelope]) -> None:
        """Hand over what it is to send, and return; `wait` is the end of it."""
        if self._process.stdin is not None:
            self._process.stdin.writelines(f"{_line(each)}\n" for each in envelopes)
            self._process.stdin.close()

    def wait(self) -> None:
        """Return once its broker has confirmed all; raises `RuntimeError` where it has not."""
        if code := self._process.wait(SENT_WITHIN_S):
            raise RuntimeError(f"{self._process.args!r} ended with {code}")

    def stop(self) -> None:
        """End it, if it still runs."""
        self._process.kill()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(SENT_WITHIN_S)


def send_all(programs: Sequence[tuple[Program, Sequence[Envelope]]]) -> None:
    """Have programs send their envelopes at the same time; returns once all are confirmed."""
    for program, envelopes in programs:
        program.send(envelopes)
    for program, _ in programs:
        program.wait()


def _line(envelope: Envelope) -> str:
    return json.dumps(
        {
            "id": envelope.id,
            "at_ms": envelope.due.ms,
            "body": (envelope.body or b"").decode(),
            "content_type": envelope.properties.content_type if envelope.properties else None,
            "headers": dict(envelope.headers),
        }
    )
