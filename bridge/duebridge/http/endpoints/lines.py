"""Many envelopes in a request, one a line: read, stored and answered as they come.

lines ─▶ envelopes ─▶ one call a batch ─▶ receipts, one a line and in order
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Literal, NamedTuple, TypeAlias

import msgspec
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from duebridge.envelope import Envelope
from duebridge.errors import EnvelopeError, StoreError
from duebridge.http.batcher import BatchKey, receipts_before, schedule_batch
from duebridge.http.bodies import most_bytes, read_parts
from duebridge.http.endpoints import keys
from duebridge.http.endpoints.outlet import Outlet, Unread
from duebridge.http.operations import AuthorizedCall
from duebridge.http.problems import ProblemError
from duebridge.jsonl import is_empty, parse_line
from duebridge.receipt import Receipt, ReceiptStatus
from duebridge.scheduling.route_scheduler import ROW_BYTES, size_bytes
from duebridge.store.batching import batches

LINES = ("application/x-ndjson", "application/jsonl")


class LineReceipt(msgspec.Struct, frozen=True, omit_defaults=True):
    """The receipt of a line. `unavailable`: send the line again, it may have been stored or not.

    One without an id ends the answer, and says why: no further line was stored.
    """

    id: str
    route: str
    due_at_ms: int
    status: ReceiptStatus | Literal["unavailable"]
    error: str = ""


class NumberedLine(NamedTuple):
    """A line of a request, by its number from 1; `made` is whether its key has made its id."""

    number: int
    given: Envelope | LineReceipt
    made: bool = False


AnyReceipt: TypeAlias = Receipt | LineReceipt


class Splitter:
    """Splits parts into lines; of a line that is too long, only the beginning is kept."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._rest = b""

    def feed(self, part: bytes) -> list[bytes]:
        """Return the lines that a part ends."""
        *whole, rest = (self._rest + part).split(b"\n")
        self._rest = rest[: self._most + 1]
        return whole

    def end(self) -> list[bytes]:
        """Return the last line, if it has no end of its own."""
        return [self._rest] if self._rest else []


class Lines(Response):
    """Reads the lines of a request and answers them; raises only before the first receipt."""

    def __init__(self, call: AuthorizedCall, batch_key: BatchKey, key: str | None) -> None:
        self._call = call
        self._batch_key = batch_key
        self._key = key
        self._most = most_bytes(call.site.config, call.route)
        self._is_started = False
        self._failed: dict[str, str] = {}  # by node, why it took no batch: it is not tried again
        self._encode = msgspec.json.Encoder().encode_lines
        self.background = None

    async def __call__(self, _: Scope, __: Receive, send: Send) -> None:
        """Answer the request."""
        within_s = self._call.site.config.serve.request_timeout / 1000
        async with Outlet(send, within_s, LINES[0]) as outlet:
            try:
                async for receipts in self._receipts(within_s):
                    self._is_started = True
                    await outlet.put(self._encode(receipts))
            except (ClientDisconnect, Unread):  # what was read is stored
                outlet.abandon()
            except (ProblemError, StoreError) as error:
                if not self._is_started:
                    raise
                await outlet.put(self._encode([self._unavailable("", str(error))]))

    async def _receipts(self, within_s: float) -> AsyncIterator[list[AnyReceipt]]:
        splitter, number = Splitter(self._most), 1
        async for part in read_parts(self._call.request, within_s, self._call.site.draining):
            lines = splitter.feed(part)
            async for receipts in self._store(lines, number):
                yield receipts
            number += len(lines)
        if not self._call.site.draining.is_set():  # else the last line may go on
            async for receipts in self._store(splitter.end(), number):
                yield receipts

    async def _store(self, lines: list[bytes], first: int) -> AsyncIterator[list[AnyReceipt]]:
        for batch in batches(self._numbered(lines, first), _size):
            if wait_s := self._call.rates.wait_s(self._call.token, len(batch)):
                await asyncio.sleep(wait_s)
            self._call.check_again("schedule")  # a stream may outlive its token
            yield await self._answered(batch)

    def _numbered(self, lines: list[bytes], first: int) -> Iterator[NumberedLine]:
        for number, text in enumerate(lines, first):
            if not is_empty(text):
                yield self._line(number, text)

    def _line(self, number: int, text: bytes) -> NumberedLine:
        made = None if self._key is None else keys.made_id(self._call.token, self._key, number)
        try:
            if len(text) > self._most:
                raise EnvelopeError(f"expected at most {self._most} bytes")
            envelope = parse_line(text, made)
        except EnvelopeError as error:
            return NumberedLine(number, self._refused(f"line {number}: {error}"))
        return NumberedLine(number, envelope, envelope.id == made)

    async def _answered(self, batch: list[NumberedLine]) -> list[AnyReceipt]:
        envelopes = [each.given for each in batch if isinstance(each.given, Envelope)]
        stored = iter(await self._scheduled(envelopes))
        return [
            each.given if isinstance(each.given, LineReceipt) else self._told(each, next(stored))
            for each in batch
        ]

    async def _scheduled(self, envelopes: list[Envelope]) -> list[AnyReceipt]:
        """Return the receipts of a batch, of which only nodes that have not failed are asked."""
        if not self._failed:
            return await self._stored(envelopes)
        failed = [self._failed.get(self._node_of(each)) for each in envelopes]
        asked = [each for each, why in zip(envelopes, failed, strict=True) if why is None]
        receipts = iter(await self._stored(asked))
        return [
            next(receipts) if why is None else self._unavailable(each.id, why)
            for each, why in zip(envelopes, failed, strict=True)
        ]

    async def _stored(self, envelopes: list[Envelope]) -> list[AnyReceipt]:
        if not envelopes:
            return []
        try:
            return [*await schedule_batch(self._call.site, self._batch_key, envelopes)]
        except StoreError as error:
            stored = [each for each in error.receipts if each.status != "refused"]
            if not self._is_started and not stored:
                raise
            return self._parted(envelopes, error)

    def _parted(self, envelopes: list[Envelope], error: StoreError) -> list[AnyReceipt]:
        """Return the receipts that a failed call had got; the nodes of the others have failed."""
        receipts = receipts_before(envelopes, error)
        for each, receipt in zip(envelopes, receipts, strict=True):
            if receipt is None:
                self._failed[self._node_of(each)] = str(error)
        return [
            self._unavailable(each.id, str(error)) if receipt is None else receipt
            for each, receipt in zip(envelopes, receipts, strict=True)
        ]

    def _node_of(self, envelope: Envelope) -> str:
        return self._call.site.node_of(self._call.route, envelope.id)

    def _told(self, line: NumberedLine, receipt: AnyReceipt) -> AnyReceipt:
        if line.made and isinstance(receipt, Receipt):
            receipt = keys.as_at_first(receipt)
        if receipt.error:
            error = f"line {line.number}: {receipt.error}"
            return msgspec.structs.replace(receipt, error=error)
        return receipt

    def _refused(self, why: str) -> LineReceipt:
        return LineReceipt("", self._call.route, 0, "refused", why)

    def _unavailable(self, id_: str, why: str) -> LineReceipt:
        return LineReceipt(id_, self._call.route, 0, "unavailable", why)


def _size(line: NumberedLine) -> int:
    return size_bytes(line.given) if isinstance(line.given, Envelope) else ROW_BYTES
