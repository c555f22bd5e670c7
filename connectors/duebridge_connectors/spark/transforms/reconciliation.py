"""The verdict as people and programs read it."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Literal, TypeAlias

import msgspec

from duebridge_connectors.spark.transforms.missing_evidence import BlindSpan, MissingEvidence

Verdict: TypeAlias = Literal["holds", "broken", "undetermined"]
HOLDS: Verdict = "holds"
BROKE: Verdict = "broken"
UNDETERMINED: Verdict = "undetermined"

_MOST_TOLD = 5


class RouteVerdict(msgspec.Struct, frozen=True):
    """The ids of a route, counted by outcome and by kind of violation.

    `undetermined` ids seem to violate something that what is missing may explain; they count
    nowhere else among the kinds.
    """

    route: str
    accepted: int
    delivered: int
    dead: int
    held: int
    cancelled: int
    recovered: int
    duplicate_copies: int
    lost: int
    early: int
    after_cancel: int
    unexpected: int
    corrupt: int
    stuck: int
    misplaced: int
    misdated: int
    duplicates: int
    in_two_places: int
    late: int
    undetermined: int
    lateness_p50_ms: int | None
    lateness_p99_ms: int | None
    lateness_max_ms: int | None


class Reconciliation(msgspec.Struct, frozen=True):
    """The verdict; `examples` has some ids, as route/id, of each kind of violation.

    It is broken by evidence only. It is undetermined if something is `missing` that may hide a
    violation of the period, or explain one: `doubtful` has examples of those. `holds` is short for
    the verdict *holds*.
    """

    since_ms: int
    until_ms: int
    verdict: Verdict
    holds: bool
    missing: list[str]
    routes: list[RouteVerdict]
    examples: dict[str, list[str]]
    doubtful: dict[str, list[str]]
    gaps: int
    lost_entries: int
    page: str | None = None

    def __str__(self) -> str:
        """Return the verdict as one line for people."""
        told = _told(self.examples)
        if self.verdict == BROKE:
            line = f"The guarantee was BROKEN: {told}."
        elif self.verdict == UNDETERMINED:
            line = "The verdict is UNDETERMINED."
            if told:
                line += f" Named: {told}."
        else:
            line = (
                "The guarantee held: nothing lost, early, after its cancel, corrupt, stuck or"
                " misplaced."
            )
        if self.doubtful:
            line += f" In doubt: {_told(self.doubtful)}."
        return line + "".join(f" Missing: {each}." for each in self.missing)


def _told(examples: dict[str, list[str]]) -> str:
    return "; ".join(f"{kind}: {', '.join(ids)}" for kind, ids in examples.items())


def whats_missing(
    doubts: MissingEvidence, since_ms: int, until_ms: int, doubtful: Iterable[str]
) -> list[str]:
    """List the evidence that a verdict on [since, until] lacks, each with its remedy."""
    found = _period(since_ms, until_ms) + _gaps(doubts, since_ms, until_ms)
    if "early" in doubtful:
        found += _clocks(doubts)
    if "after_cancel" in doubtful and not found:
        found.append(
            "receipts with the answers of schedule and cancel, which tell a cold envelope that came"
            " back from one that was scheduled again: --receipts"
        )
    return found


def _period(since_ms: int, until_ms: int) -> list[str]:
    """Name a table of the journal that ends before the period begins: nothing of it was seen."""
    if since_ms <= until_ms:
        return []
    remedy = "bring the table of the job journal up to date, then judge again"
    return [f"the journal after {_text(until_ms)}, so all since {_text(since_ms)} ({remedy})"]


def _gaps(doubts: MissingEvidence, since_ms: int, until_ms: int) -> list[str]:
    spans = [span for span in doubts.spans if span.overlaps(since_ms, until_ms)]
    if not spans:
        return []
    told = [f"{_lost(span)} {_when(span.after_ms, span.before_ms)}" for span in spans]
    if len(told) > _MOST_TOLD:
        told[_MOST_TOLD:] = [f"and {len(told) - _MOST_TOLD} more gaps"]
    ends = [span.before_ms for span in spans]
    whole = max(end for end in ends if end is not None) if all(ends) else None
    remedy = "give a table of the job journal that has them: --journal"
    if whole is not None:
        remedy += f"; or judge what is whole: --since {_text(whole + 1)}"
    return [*told[:-1], f"{told[-1]} ({remedy})"]


def _lost(span: BlindSpan) -> str:
    if span.shard is None:
        return f"the journal of {span.route}, which a purge removed,"
    count = f"{span.lost_entries:,} " if span.lost_entries else ""
    noun = "entry" if span.lost_entries == 1 else "entries"
    return f"{count}{noun} of the journal of {span.route}/{span.shard}"


def _when(after_ms: int | None, before_ms: int | None) -> str:
    if after_ms is None:
        return "from its beginning" if before_ms is None else f"before {_text(before_ms)}"
    if before_ms is None:
        return f"after {_text(after_ms)}"
    return f"between {_text(after_ms)} and {_text(before_ms)}"


def _clocks(doubts: MissingEvidence) -> list[str]:
    return [
        f"one clock for the store and the broker of {route}, which is"
        f" {clock.behind_ms / 1000:.1f} s behind, as all {clock.messages:,} messages show"
        f" (set the clocks, or say --clock-skew {-(-clock.behind_ms // 1000)}s)"
        for route, clock in sorted(doubts.clocks.items())
    ]


def _text(ms: int) -> str:
    at = datetime.fromtimestamp(ms / 1000, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def verdict_of(is_broken: bool, missing: Sequence[str], doubtful: Iterable[str]) -> Verdict:
    """Return the verdict: evidence first, then doubt."""
    if is_broken:
        return BROKE
    return UNDETERMINED if missing or any(doubtful) else HOLDS
