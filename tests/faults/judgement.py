"""The verdict on a run: its histories read back, the store's dump with them."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from duebridge.admin.listing import Listing
from duebridge.audit import (
    Bounds,
    Event,
    Op,
    Phase,
    Verdict,
    audit,
    history_of,
    whole_histories,
)
from duebridge.store.route_store import RouteStore
from tests.faults.histories import Historian, now_ms, read_histories
from tests.faults.leftovers import Leftovers
from tests.faults.scenario import Scenario


def dump(home: Path, route: RouteStore) -> None:
    """Write down every envelope that the store still has, and its state."""
    history = Historian(home, "store")
    entries = [place.entry for place in Listing(route.route.name, route.shards).walk()]
    history.write(
        Event(now_ms(), Op.STORE, Phase.OK, each.id, answer=each.state) for each in entries
    )
    history.close()


def judge(
    home: Path, scenario: Scenario, faults: int, left: Leftovers
) -> tuple[Verdict, dict[str, list[str]]]:
    """Return the verdict, and the ids by what is wrong with them; so many faults were tried."""
    events = read_histories(home)
    verdict = audit(history_of(events))
    bounds = Bounds(
        duplicates=scenario.window * scenario.workers * faults * scenario.may_repeat,
        dead=verdict.accepted * scenario.may_bury,
    )
    violations = verdict.violations(bounds)
    violations |= left.violations()
    if violations:
        _tell(home, events, violations)
    return verdict, violations


def _tell(home: Path, events: list[Event], violations: Mapping[str, list[str]]) -> None:
    ids = {each for found in violations.values() for each in found}
    lines = [
        msgspec.json.encode(event).decode()
        for story in whole_histories(events, ids).values()
        for event in sorted(story, key=lambda event: event.at_ms)
    ]
    (home / "violations.jsonl").write_text("\n".join(lines) + "\n")
