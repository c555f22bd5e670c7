"""Replays or drops selected dead envelopes: confirmed first, batch by batch, at a limited rate."""

import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import typer

from duebridge.cli.commands.dead.selection import DeadSelection
from duebridge.cli.exits import finish, telling_what_is_done
from duebridge.cli.output import (
    STDERR,
    STDIN,
    Output,
    complain,
    ignoring_closed_output,
    is_terminal,
    printable,
    shown_progress,
    write,
    write_json,
)
from duebridge.errors import EnvelopeError, listed_counts

if TYPE_CHECKING:
    from duebridge.admin.operator import DeadSettlement, TellSettled

FIRST = 10
BATCH = 100
BATCHES_A_SECOND = 10  # so that a slow rate is even, not one burst a second
_RATE = re.compile(r"([1-9][0-9]{0,6})/s")


def parse_rate(text: str) -> int:
    """Return a rate per second; raises `EnvelopeError`.

    >>> parse_rate("50/s")
    50
    """
    if match := _RATE.fullmatch(text.strip()):
        return int(match[1])
    raise EnvelopeError(f"--rate: expected a whole number a second, such as 50/s; got {text!r}")


class RateLimiter:
    """Delays batches so that they do not exceed a rate per second; None is unlimited."""

    def __init__(
        self,
        rate: int | None,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rate = rate
        self._monotonic = monotonic
        self._sleep = sleep
        self._free_at = monotonic()

    def batch_size(self, most: int) -> int:
        """Return the size of a batch, at most `most`."""
        return most if self._rate is None else max(1, min(most, self._rate // BATCHES_A_SECOND))

    def wait(self, count: int) -> None:
        """Return when `count` more may go."""
        if self._rate is None:
            return
        now = self._monotonic()
        if (pause_s := self._free_at - now) > 0:
            self._sleep(pause_s)
        self._free_at = max(self._free_at, now) + count / self._rate


class SettleBatch(NamedTuple):
    """Some of the selected ids, from number `first` on; they are `of` in all, 0 if not counted."""

    ids: list[str]
    first: int
    of: int


class Spread(NamedTuple):
    """A delay, and the time over which what is replayed falls due."""

    delay_ms: int
    spread_ms: int

    def of(self, batch: SettleBatch) -> "Spread":
        """Return the part of a batch.

        >>> Spread(5, 1000).of(SettleBatch(["a", "b"], first=4, of=10))
        Spread(delay_ms=405, spread_ms=200)
        """
        if not self.spread_ms:
            return self
        begin, end = batch.first, batch.first + len(batch.ids)
        start_ms = self.spread_ms * begin // batch.of
        return Spread(self.delay_ms + start_ms, self.spread_ms * end // batch.of - start_ms)


class SettlePlan(NamedTuple):
    """A way to settle dead envelopes: the verb for people, the call for a batch, the rate."""

    verb: str
    call: "Callable[[SettleBatch, TellSettled], object]"
    limiter: RateLimiter
    is_counted: bool = False  # before it begins: all ids are in memory then


def carry_out(
    plan: SettlePlan, selection: DeadSelection, output: Output, *, is_dry_run: bool, is_agreed: bool
) -> None:
    """Settle the selection once a person agrees; a dry run only prints what it would settle."""
    if is_dry_run:
        _show_dry_run(plan.verb, selection, output)
        return
    _confirm(plan.verb, selection, is_agreed)
    _settle(plan, selection, output)


def _show_dry_run(verb: str, selection: DeadSelection, output: Output) -> None:
    """Print how many would be settled, and the first of them."""
    first: list[str] = []
    count = 0
    with shown_progress("counted") as advance:
        for one_id in selection.dead_ids():
            count += 1
            advance(1)
            if len(first) < FIRST:
                first.append(one_id)
    if output is Output.JSON:
        write_json({"route": selection.route, "matched": count, "first": first})
        return
    write(f"would {verb} {count} of route {selection.route}{'; the first:' if first else ''}")
    for one_id in first:
        write(f"  {printable(one_id)}")


def _confirm(verb: str, selection: DeadSelection, is_agreed: bool) -> None:
    """Ask a person at a terminal before settling by filter; exits with 1 if they refuse."""
    if is_agreed or selection.ids or not (is_terminal(STDIN) and is_terminal(STDERR)):
        return
    count = sum(1 for _ in selection.dead_ids())
    try:
        is_wanted = typer.confirm(f"{verb} {count} of route {selection.route}?", err=True)
    except typer.Abort as error:  # Ctrl-C, or the end of input
        raise KeyboardInterrupt from error
    if not is_wanted:
        complain("nothing was changed")
        finish(is_yes=False)


def _settle(plan: SettlePlan, selection: DeadSelection, output: Output) -> None:
    """Settle batch by batch and print each status; exits with 1 if one was not settled."""
    counts: Counter[str] = Counter()
    with (
        telling_what_is_done(lambda: listed_counts(counts)),
        shown_progress("settled") as advance,
    ):
        for batch in _batches(plan, selection.all_ids()):
            plan.limiter.wait(len(batch.ids))
            for answer in _settled(plan, batch, counts):
                advance(1)
                _show(answer, selection, output)
    if not selection.ids:
        complain(listed_counts(counts) or "nothing was selected")
    finish(is_yes=not counts["in_flight"] + counts["unknown"])


def _settled(
    plan: SettlePlan, batch: SettleBatch, counts: Counter[str]
) -> "Iterator[DeadSettlement]":
    """Settle a batch and yield its answers in order; those before an error, then the error.

    All are counted first: the output may end amid the batch.
    """
    found: dict[str, DeadSettlement] = {}

    def tell(answer: "DeadSettlement") -> None:
        found[answer.id] = answer
        counts[answer.status] += 1

    try:
        plan.call(batch, tell)
    finally:
        yield from (found[each] for each in batch.ids if each in found)


def _batches(plan: SettlePlan, ids: Iterable[str]) -> Iterator[SettleBatch]:
    known = list(ids) if plan.is_counted else ()
    left, size, first = iter(known or ids), plan.limiter.batch_size(BATCH), 0
    while batch := list(islice(left, size)):
        yield SettleBatch(batch, first, len(known))
        first += len(batch)


def _show(answer: "DeadSettlement", selection: DeadSelection, output: Output) -> None:
    """Write an answer; says why an envelope of this id is not dead if the store has one."""
    state = selection.state(answer.id) if selection.ids and answer.status == "unknown" else ""
    with ignoring_closed_output():
        if output is Output.JSON:
            write_json(answer)
        else:
            write(f"{answer.status:<9}  {printable(answer.id)}")
    if state not in ("", "unknown"):
        complain(f"duebridge: {answer.id!r} is {state}, not dead")
