"""Any order of producers, workers and jobs of the cold tier that overlap, stop and die."""

import os
import secrets

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duebridge.store.server.connection import Connection
from tests.store.cold.cold_history import ColdHistory, Event
from tests.support.desk import YEAR_MS, Desk

EXAMPLES = int(os.environ.get("DUEBRIDGE_EXAMPLES", "100"))
KINDS = [
    *("schedule", "schedule", "cancel", "cancel", "move", "deliver", "pass_time", "fail_over"),
    *("begin", "begin", "begin", "step", "step", "step", "step", "step", "kill"),
]
EVENTS = st.lists(
    st.builds(Event, st.sampled_from(KINDS), st.integers(0, 7), st.integers(0, 15)),
    min_size=5,
    max_size=40,
)
WHOLE = 99  # steps: to the end of the job
PUT, SAME = Event("schedule", 0, 0), Event("schedule", 0, 1)
DEMOTE, HYDRATE = [Event("begin", 0), Event("step", 0, WHOLE)], Event("begin", 1, 1)
COLD = [PUT, *DEMOTE]
CANCEL, MOVED = Event("cancel", 0), Event("move", 0, 0)
LEASE_OVER = Event("pass_time", 1)
WAITING = [
    PUT,
    Event("begin", 0),
    Event("step", 0, 0),  # it has read x
    Event("pass_time", 3),
    *[Event("pass_time", 2)] * 4,
]
FILTER = [HYDRATE, Event("step", 0, WHOLE)]
BEGINS = {
    "nothing": [],
    "a filter": FILTER,
    "two hydrates of a void copy": [
        PUT,
        Event("begin", 0),
        Event("step", 0, 1),  # copied and committed
        MOVED,
        Event("step", 0, WHOLE),  # void
        HYDRATE,
        Event("step", 0, 2),  # B has read the files, not the marks
        LEASE_OVER,
        HYDRATE,
        Event("step", 1, WHOLE),
        CANCEL,
        Event("step", 0, WHOLE),
    ],
    "two hydrates of a cancelled row": [
        *COLD,
        HYDRATE,
        Event("step", 0, 2),
        LEASE_OVER,
        CANCEL,
        HYDRATE,
        Event("step", 1, WHOLE),
        Event("step", 0, WHOLE),
    ],
    "scheduled again and cancelled": [
        *FILTER,
        *COLD,
        SAME,
        CANCEL,
        HYDRATE,
        Event("step", 0, WHOLE),
    ],
    "other content beside a cold copy": [*FILTER, *COLD, PUT, HYDRATE, Event("step", 0, WHOLE)],
    "loaded with other content beside cold copies": [
        *FILTER,
        *COLD,
        *[Event("begin", 3, 1), Event("step", 0, WHOLE)] * 4,
        HYDRATE,
        Event("step", 0, WHOLE),
    ],
    "scheduled and demoted between mark and commit of a load": [
        Event("begin", 3, 1),
        Event("step", 0, 2),  # marked
        Event("schedule", 1, 0),
        Event("begin", 0),
        Event("step", 1, WHOLE),
        Event("step", 0, WHOLE),
    ],
    "demoted between the generation and the mark of a load": [
        Event("begin", 3, 1),
        Event("step", 0, 0),  # it has its generation
        Event("schedule", 1, 0),
        Event("begin", 0),
        Event("step", 1, WHOLE),
        Event("step", 0, WHOLE),
    ],
    "moved ahead of a demote that reads": [
        PUT,
        Event("begin", 0),
        Event("step", 0, 0),  # it has read x
        MOVED,
        Event("step", 0, WHOLE),
    ],
    "cancelled while a hydrate that brought it back died": [
        *FILTER,
        *COLD,
        HYDRATE,
        Event("step", 0, 4),
        Event("kill", 0),
        CANCEL,
        LEASE_OVER,
        HYDRATE,
        Event("step", 0, WHOLE),
    ],
    "a batch that waits behind a hydrate until its row is due soon": [
        *WAITING,
        HYDRATE,
        Event("step", 1, WHOLE),
        Event("step", 0, WHOLE),
    ],
    "a batch that comes behind the back of a hydrate when its row is due soon": [
        *WAITING,
        HYDRATE,
        Event("step", 1, 3),  # it has read the files
        Event("step", 0, WHOLE),
        Event("step", 0, WHOLE),
    ],
    "a late hydrate of a cancelled row": [*COLD, CANCEL, *[Event("pass_time", 3)] * 20, HYDRATE],
}


def run(connection: Connection, events: list[Event], remember_ms: int) -> None:
    desk = Desk(connection, f"test-{secrets.token_hex(6)}", cold_tier_ms=YEAR_MS)
    history = ColdHistory(desk, remember_ms)
    try:
        for event in events:
            history.happen(event)
        history.finish()
    finally:
        desk.delete()


@pytest.mark.parametrize("remember_ms", [0, YEAR_MS])
@pytest.mark.parametrize("begin", BEGINS)
def test_cold_rows_obey_whatever_jobs_overlap(
    connection: Connection, begin: str, remember_ms: int
) -> None:
    run(connection, BEGINS[begin], remember_ms)


@pytest.mark.parametrize("connection", ["redis"], indirect=True)
@settings(max_examples=EXAMPLES, derandomize=True, deadline=None)
@given(
    begin=st.sampled_from(sorted(BEGINS)),
    events=EVENTS,
    remember_ms=st.sampled_from([0, YEAR_MS]),
)
def test_cold_rows_obey_in_any_order(
    connection: Connection, begin: str, events: list[Event], remember_ms: int
) -> None:
    run(connection, BEGINS[begin] + events, remember_ms)
