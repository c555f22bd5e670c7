"""Replay or drop of many dead envelopes: counted first, paced, and never without a word."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import typer

from duebridge.admin.dead import DeadFilter
from duebridge.admin.operator import Operator, Settled
from duebridge.cli.exits import finish
from duebridge.cli.output import (
    STDERR,
    STDIN,
    Output,
    OutputClosed,
    complain,
    discard_output,
    is_terminal,
    printable,
    shown_progress,
    write,
    write_json,
)
from duebridge.cli.pace import Pacer
from duebridge.errors import StoreError

FIRST = 10
BATCH = 100


class Chosen(NamedTuple):
    """The dead envelopes that are meant: these ids, or where there are none those of the filter."""

    operator: Operator
    route: str
    ids: Sequence[str]
    wanted: DeadFilter

    def each(self) -> Iterator[str]:
        """Yield their ids; whoever has died since this was begun is not meant."""
        if self.ids:
            yield from dict.fromkeys(self.ids)
            return
        now_ms = self.operator.now_ms()
        before_ms = now_ms if self.wanted.before_ms is None else min(now_ms, self.wanted.before_ms)
        wanted = self.wanted._replace(before_ms=before_ms)
        for place in self.operator.dead_places(self.route, wanted):
            yield place.entry.id

    def dead(self) -> Iterator[str]:
        """Yield the ids of those that are dead by now."""
        if not self.ids:
            yield from self.each()
            return
        for each in self.each():
            known = self.operator.show(self.route, each)
            if known is not None and known.state == "dead":
                yield each


class Plan(NamedTuple):
    """What is to become of them: the word for it, the call that settles a batch, and its pace."""

    verb: str
    call: Callable[[list[str]], list[Settled]]
    pacer: Pacer


def carry_out(
    plan: Plan, chosen: Chosen, output: Output, *, is_dry_run: bool, is_agreed: bool
) -> None:
    """Settle them, unless a person says no; a dry run only says which it would be."""
    if is_dry_run:
        _show_dry_run(plan.verb, chosen, output)
        return
    _confirm(plan.verb, chosen, is_agreed)
    _settle(plan, chosen, output)


def _show_dry_run(verb: str, chosen: Chosen, output: Output) -> None:
    """Say how many would be settled, and which first."""
    first: list[str] = []
    count = 0
    with shown_progress("counted") as advance:
        for each in chosen.dead():
            count += 1
            advance(1)
            if len(first) < FIRST:
                first.append(each)
    if output is Output.JSON:
        write_json({"route": chosen.route, "matched": count, "first": first})
        return
    write(f"would {verb} {count} of route {chosen.route}{'; the first:' if first else ''}")
    for each in first:
        write(f"  {printable(each)}")


def _confirm(verb: str, chosen: Chosen, is_agreed: bool) -> None:
    """Ask where a person sits at a terminal and meant a filter; ends with 1 where they say no."""
    if is_agreed or chosen.ids or not (is_terminal(STDIN) and is_terminal(STDERR)):
        return
    count = sum(1 for _ in chosen.dead())
    try:
        is_wanted = typer.confirm(f"{verb} {count} of route {chosen.route}?", err=True)
    except typer.Abort as error:  # Ctrl-C, or the end of input
        raise KeyboardInterrupt from error
    if not is_wanted:
        complain("nothing was changed")
        finish(is_yes=False)


def _settle(plan: Plan, chosen: Chosen, output: Output) -> None:
    """Settle batch by batch and say what became of each; ends with 1 where one was not."""
    counts: Counter[str] = Counter()
    try:
        with shown_progress("settled") as advance:
            for batch in _batches(chosen.each(), plan.pacer.batch_size(BATCH)):
                plan.pacer.wait(len(batch))
                answers = plan.call(batch)
                counts.update(each.status for each in answers)
                advance(len(answers))
                for each in answers:
                    _show(each, output)
    except StoreError as error:
        raise type(error)(f"{error}; before that: {_summary(counts)}") from error
    except KeyboardInterrupt:
        complain(f"duebridge: interrupted; before that: {_summary(counts)}")
        raise
    if not chosen.ids:
        complain(_summary(counts))
    finish(is_yes=not counts["in_flight"] + counts["unknown"])


def _batches(ids: Iterable[str], size: int) -> Iterator[list[str]]:
    left = iter(ids)
    while batch := list(islice(left, size)):
        yield batch


def _show(settled: Settled, output: Output) -> None:
    try:
        if output is Output.JSON:
            write_json(settled)
        else:
            write(f"{settled.status:<9}  {printable(settled.id)}")
    except OutputClosed:  # nobody reads the answers; the rest is settled all the same
        discard_output()


def _summary(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {status}" for status, count in counts.items()) or "none was meant"
