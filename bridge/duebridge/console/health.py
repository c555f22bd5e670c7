"""A route's health in one word and one sentence."""

from typing import Literal, NamedTuple

from duebridge.admin.held import count_serving
from duebridge.admin.route_stats import RouteStats
from duebridge.console.words import plural, span
from duebridge.envelope import Target
from duebridge.store.workers import WorkerRecord


class Health(NamedTuple):
    """A route's word, its tone (ok, warn, bad or empty) and why."""

    word: str
    tone: Literal["ok", "warn", "bad", ""]
    why: str


def health(stats: RouteStats, workers: list[WorkerRecord] | None) -> Health:
    """Judge a route's health by its figures and the workers' records."""
    held = [each for each in stats.held if not each.dead_letter]
    if held:
        return Health("held", "bad", f"{held[0].target}: {held[0].error}")
    due = stats.ready + stats.unack
    if workers is not None and not count_serving(workers, stats.route):
        if due or stats.oldest_due_age_ms:
            return Health("no worker", "bad", "envelopes are due and no worker serves this route")
        if stats.waiting:
            return Health("no worker", "warn", "no worker serves this route")
    if stats.is_late:
        why = f"the oldest due envelope waits for {span(stats.oldest_due_age_ms)}"
        return Health("late", "warn", why)
    if stats.waiting:
        return Health("flowing", "ok", f"{plural(stats.waiting, 'envelope')} to be delivered")
    return Health("idle", "", "nothing waits")


def target_health(
    target: Target, stats: RouteStats, workers: list[WorkerRecord] | None, *, dead_letter: bool
) -> Health:
    """Judge a target's health: the workers' records name failing targets only."""
    for each in stats.held:
        if (each.target, each.dead_letter) == (str(target), dead_letter):
            return Health("held", "bad", each.error)
    serving = [each for each in workers or [] if stats.route in each.routes]
    lanes = [lane for each in serving for lane in each.lanes if lane.broker == target.broker]
    away = [lane for lane in lanes if not lane.is_open]
    if not lanes:
        return Health("not tried", "", "no worker says that it serves this route")
    if away:
        is_all = len(away) == len(lanes)
        word = "not reached" if is_all else f"not reached by {len(away)} of {len(lanes)}"
        return Health(word, "bad" if is_all else "warn", away[0].error)
    return Health("well", "ok", "no worker sees it fail")
