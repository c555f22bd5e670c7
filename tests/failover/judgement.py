"""Histories on disk, and what they say of a failover: pure functions of events."""

from collections.abc import Sequence

import msgspec

from duebridge.audit import audit
from tests.support.model.histories import HistoryEvent, Phase, Subject, history_of

LOSSES = ("lost", "brought_back", "early", "moves_lost")
RESUMES_WITHIN_S = 5.0  # but for stalls of the whole rig, which relays every call


class Counts(msgspec.Struct, frozen=True):
    """What came of a run's envelopes and calls.

    `lost`: accepted, never delivered, and not in the store. `brought_back`: delivered, or still in
    the store, although a cancel answered *cancelled*. `early`: delivered before the due instant of
    the last receipt. `moves_lost`: due by the last receipt, but not in the store's view. `stuck`:
    due in the store's view, and still there. `duplicates` are copies beyond
    the first; `indeterminate` calls had no answer but an error that says so; `refused` ones had any
    other error.
    """

    accepted: int
    delivered: int
    cancelled: int
    lost: list[str]
    brought_back: list[str]
    early: list[str]
    moves_lost: list[str]
    stuck: list[str]
    duplicates: int
    indeterminate: int
    refused: list[str]

    def violations(self, *, keeps_all: bool) -> dict[str, list[str]]:
        """Return what no run may show; and what none may lose that promises to keep all."""
        kinds = ["stuck", "refused", *(LOSSES if keeps_all else ())]
        return {kind: found for kind in kinds if (found := getattr(self, kind))}


def count(events: Sequence[HistoryEvent], ended_at_ms: int) -> Counts:
    """Return what came of a run, whose store was read when nothing due waited any more."""
    history = history_of(events)
    verdict = audit(history)
    due_ms = {each.id: each.due_at_ms for each in history.accepted}
    held_ms = {event.id: event.due_at_ms for event in events if event.subject is Subject.STORE}
    is_due = {each for each in held_ms if due_ms.get(each, ended_at_ms) < ended_at_ms}
    stuck = {each for each, at_ms in held_ms.items() if at_ms < ended_at_ms}
    unanswered = {_call(event): event.answer for event in events if _is_unanswered(event)}
    refused = [answer for answer in unanswered.values() if answer.startswith(REFUSED)]
    return Counts(
        accepted=verdict.accepted,
        delivered=verdict.delivered,
        cancelled=verdict.cancelled,
        lost=verdict.lost,
        brought_back=sorted({*verdict.after_cancel, *(history.cancelled & held_ms.keys())}),
        early=verdict.early,
        moves_lost=sorted(is_due - stuck - history.cancelled),
        stuck=sorted(stuck),
        duplicates=verdict.duplicate_copies,
        indeterminate=len(unanswered) - len(refused),
        refused=sorted(refused),
    )


REFUSED = "!"  # begins the answer of a call with an error that is not about a store that is away


def _is_unanswered(event: HistoryEvent) -> bool:
    return event.phase is Phase.INFO and event.subject is not Subject.FAULT


def _call(event: HistoryEvent) -> tuple[Subject, str, int]:
    """Return what the events of one call share: a batch is one."""
    return event.subject, event.id.partition("-")[0], event.at_ms
