"""Many envelopes from standard input, a line each: a bad line is named, and no other is lost.

A batch is what has arrived by then, up to `SCHEDULE_ROWS` lines: a slow stream is not held up, a
fast one is sent in bulk, and memory holds one batch.
"""

from collections.abc import Callable, Sequence

from duebridge.cli.lines import Line, is_empty, opened_stdin, parse_line, read_batches
from duebridge.cli.output import (
    Output,
    OutputClosed,
    complain,
    discard_output,
    shown_progress,
)
from duebridge.cli.receipts import is_stored, show_receipt
from duebridge.cli.rejects import Rejects
from duebridge.envelope import Envelope
from duebridge.errors import EnvelopeError, StoreError
from duebridge.producer import OnConflict, Producer
from duebridge.receipt import Receipt
from duebridge.store.batching import SCHEDULE_ROWS


class LineSender:
    """Sends lines in batches, as they come in; counts those that the store did not take."""

    def __init__(
        self,
        producer: Producer,
        route: str,
        on_conflict: OnConflict,
        output: Output,
        rejects: Rejects,
    ) -> None:
        self.stored = 0
        self.refused = 0
        self._next_line = 1
        self._producer = producer
        self._route = route
        self._on_conflict = on_conflict
        self._output = output
        self._rejects = rejects

    def send_all(self) -> None:
        """Send standard input to its end; raises `StoreError`, naming what is stored by then."""
        try:
            with opened_stdin() as lines, shown_progress("lines sent") as advance:
                for batch in read_batches(lines, SCHEDULE_ROWS):
                    self._send(batch, advance)
        except StoreError as error:
            raise type(error)(f"{error}; {self._progress()}") from error
        except KeyboardInterrupt:
            complain(f"duebridge: interrupted; {self._progress()}")
            raise
        if self.refused:
            complain(f"{self.stored} lines stored, {self.refused} refused")

    def _send(self, batch: Sequence[Line], advance: Callable[[int], None]) -> None:
        parsed = [(line, envelope) for line in batch if (envelope := self._parse(line))]
        receipts = self._producer.schedule_many(
            self._route, [envelope for _, envelope in parsed], on_conflict=self._on_conflict
        )
        self._next_line = batch[-1].number + 1
        self.stored += sum(map(is_stored, receipts))
        for (line, _), receipt in zip(parsed, receipts, strict=True):
            self._show(line, receipt)
        advance(len(batch))

    def _parse(self, line: Line) -> Envelope | None:
        if is_empty(line.text):
            return None
        try:
            return parse_line(line.text)
        except EnvelopeError as error:
            self._refuse(line, str(error))
            return None

    def _show(self, line: Line, receipt: Receipt) -> None:
        if not is_stored(receipt):
            self._refuse(line, receipt.error or f"{receipt.status}: id {receipt.id}")
        try:
            show_receipt(receipt, self._output)
        except OutputClosed:  # nobody reads the receipts; the envelopes are sent all the same
            discard_output()

    def _refuse(self, line: Line, why: str) -> None:
        self.refused += 1
        self._rejects.keep(line, why)
        complain(f"line {line.number}: {why}")

    def _progress(self) -> str:
        return (
            f"{self.stored} lines stored, {self.refused} refused;"
            f" lines before {self._next_line} are done, later ones may not be stored"
        )
