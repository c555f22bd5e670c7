"""What a person does to envelopes: carried out, told, and journalled with the name."""

from collections.abc import Iterator
from itertools import count

import httpx
import pytest
from playwright.sync_api import Page, ViewportSize, expect

from duebridge.admin.dead import list_dead
from duebridge.admin.operator import Operator
from duebridge.admin.timeline import timeline
from duebridge.console.pages import dead
from duebridge.console.pages.dead import MOST_LOOKED
from duebridge.durations import format_instant
from duebridge.ports.publisher import Reason
from duebridge.producer import Producer
from duebridge.store import batching
from duebridge.store.wire.transitions import Burial, Retry
from tests.console.conftest import Person, log_in
from tests.console.scene import HOSTILE, Scene, due_now
from tests.console.screenshots import DESK, PHONE
from tests.console.served import OPERATE
from tests.support.servers import wait_until

HOUR_MS = 3_600_000
ROUTE = "parcel-pickup"  # which no other test looks at
_numbers = count()


@pytest.fixture
def fresh_id(scene: Scene) -> Iterator[str]:
    """A pending envelope of the test's own, whose id is as hostile as ids may be."""
    name = f"{HOSTILE}/%2F..&?#{next(_numbers)}"
    Producer(scene.config, scene.connection).schedule(ROUTE, b"{}", id=name, delay="5d")
    yield name
    Operator(scene.config, scene.connection).cancel(ROUTE, [name])


def open_envelope(page: Page, id: str) -> None:
    page.get_by_role("searchbox", name="Find an envelope by its id").fill(id)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text(id)


def last_event(scene: Scene, id: str) -> tuple[str, str]:
    """The kind of the newest event of an envelope, and by whom."""
    event = timeline(Operator(scene.config, scene.connection), ROUTE, id).events[-1]
    return event.kind, event.by


def test_deliver_now_makes_it_due(operator: Page, scene: Scene, fresh_id: str) -> None:
    open_envelope(operator, fresh_id)
    operator.get_by_role("button", name="Deliver now").click()
    expect(operator.get_by_role("status")).to_contain_text("due now")
    shown = Operator(scene.config, scene.connection).show(ROUTE, fresh_id)
    assert shown is not None
    assert shown.due_at_ms <= Operator(scene.config, scene.connection).now_ms()
    assert last_event(scene, fresh_id) == ("rescheduled", "maria")
    expect(operator.get_by_role("main")).to_contain_text("by maria")


def test_cancel_asks_first_and_removes_it(operator: Page, scene: Scene, fresh_id: str) -> None:
    open_envelope(operator, fresh_id)
    button = operator.get_by_role("button", name="Cancel the envelope")
    expect(button).not_to_be_visible()
    operator.get_by_text("Cancel…").click()
    button.click()
    expect(operator.get_by_role("status")).to_contain_text("will not be delivered")
    assert Operator(scene.config, scene.connection).show(ROUTE, fresh_id) is None
    assert last_event(scene, fresh_id) == ("cancelled", "maria")
    expect(operator.get_by_role("main")).to_contain_text("not in the store")


def test_cancel_of_what_may_have_been_delivered_says_so(operator: Page, scene: Scene) -> None:
    """It is gone all the same: nothing of it is tried again."""
    name = f"unsure-{next(_numbers)}"
    due_now(Producer(scene.config, scene.connection), ROUTE, [name])
    store = scene.store(ROUTE)
    store.promote()
    claim = store.claim(1, HOUR_MS)
    assert claim.ids == [name]
    unsure = Retry(id=name, delay_ms=HOUR_MS, is_failure=True, is_unsure=True, error="No confirm")
    store.retry(claim.token, [unsure])
    open_envelope(operator, name)
    operator.get_by_text("Cancel…").click()
    operator.get_by_role("button", name="Cancel the envelope").click()
    expect(operator.get_by_role("status")).to_contain_text("may arrive: no other will be tried")
    assert Operator(scene.config, scene.connection).show(ROUTE, name) is None
    expect(operator.get_by_role("main")).to_contain_text("not in the store")


@pytest.mark.parametrize(
    ("label", "text", "answer"),
    [
        ("After a delay", "6d", "has a new due instant"),
        ("or at an instant", "2100-01-01T10:00:00", "beyond the route's longest delay"),
    ],
)
def test_reschedule_tells_what_became_of_it(
    label: str, text: str, answer: str, operator: Page, scene: Scene, fresh_id: str
) -> None:
    open_envelope(operator, fresh_id)
    operator.get_by_text("Reschedule…").click()
    operator.get_by_label(label).fill(text)
    operator.get_by_role("button", name="Reschedule").click()
    expect(operator.get_by_role("status")).to_contain_text(answer)


def test_reschedule_at_an_instant_finer_than_a_millisecond_is_never_early(
    client: httpx.Client, scene: Scene, fresh_id: str
) -> None:
    operator = Operator(scene.config, scene.connection)
    whole_ms = operator.now_ms() + HOUR_MS
    form = {"proof": log_in(client, OPERATE), "route": ROUTE, "id": fresh_id}
    at = format_instant(whole_ms).replace("Z", "0001")
    assert client.post("/envelope/reschedule", data={**form, "at": at}).status_code == 303
    shown = operator.show(ROUTE, fresh_id)
    assert shown is not None
    assert shown.due_at_ms == whole_ms + 1


def test_reschedule_without_an_instant_changes_nothing(
    operator: Page, visitor: Person, scene: Scene, fresh_id: str
) -> None:
    open_envelope(operator, fresh_id)
    operator.get_by_text("Reschedule…").click()
    operator.get_by_role("button", name="Reschedule").click()
    expect(operator.get_by_role("alert")).to_contain_text("exactly one")
    assert last_event(scene, fresh_id)[0] == "accepted"
    visitor.complaints.clear()  # the browser notes the 422


# --- dead letters ---


def bury(scene: Scene, ids: list[str], reason: Reason = Reason.INVALID) -> None:
    """Make envelopes that are dead of a hostile error."""
    due_now(Producer(scene.config, scene.connection), ROUTE, ids)
    bury_due(scene, ids, reason)


def bury_due(scene: Scene, ids: list[str], reason: Reason = Reason.INVALID) -> None:
    """Bury envelopes that are due, or in this millisecond."""
    store = scene.store(ROUTE)
    wait_until(lambda: store.promote()[0].ready == len(ids), "all to be ready")
    claim = store.claim(len(ids), 30_000)
    assert set(claim.ids) == set(ids)
    error = f"Broken{HOSTILE}\n{HOSTILE}"
    store.bury(
        claim.token,
        [
            Burial(id=each, reason=reason, is_failure=True, is_unsure=False, error=error)
            for each in ids
        ],
    )


@pytest.fixture
def dead_ids(scene: Scene) -> Iterator[list[str]]:
    """Three dead envelopes of the test's own, each of an error that no other test has."""
    ids = [f"dead-{next(_numbers):04}" for _ in range(3)]  # in the order of the store
    bury(scene, ids)
    yield ids
    admin = Operator(scene.config, scene.connection)
    admin.drop(ROUTE, ids)
    admin.cancel(ROUTE, ids)


def test_replay_of_all_shows_a_dry_run_and_spreads_them(
    operator: Page, scene: Scene, dead_ids: list[str]
) -> None:
    operator.goto(f"/dead?route={ROUTE}")
    operator.get_by_role("link", name="invalid").click()
    operator.get_by_label("all 3 that match").check()
    operator.get_by_role("button", name="Replay…").click()
    expect(operator.get_by_role("heading", level=1)).to_have_text("Replay 3 dead envelopes?")
    admin = Operator(scene.config, scene.connection)
    assert admin.stats([ROUTE])[0].dead == 3, "a dry run changed something"
    operator.get_by_label("Begin after").fill("1h")
    operator.get_by_label("Spread over").fill("30m")
    operator.get_by_role("button", name="Replay 3").click()
    expect(operator.get_by_role("status")).to_contain_text("3 replayed")
    due = sorted(known.due_at_ms for each in dead_ids if (known := admin.show(ROUTE, each)))
    assert [later - due[0] for later in due] == [0, 600_000, 1_200_000]
    assert last_event(scene, dead_ids[0]) == ("replayed", "maria")


def test_drop_of_chosen_leaves_the_others(
    operator: Page, scene: Scene, dead_ids: list[str]
) -> None:
    operator.goto(f"/dead?route={ROUTE}")
    operator.get_by_label(f"Choose {dead_ids[0]}").check()
    operator.get_by_role("button", name="Drop…").click()
    main = operator.get_by_role("main")
    expect(main).to_contain_text("Drop 1 dead envelope?")
    expect(main).to_contain_text("gone for good")
    operator.get_by_role("button", name="Drop 1").click()
    expect(operator.get_by_role("status")).to_contain_text("1 dropped")
    assert Operator(scene.config, scene.connection).stats([ROUTE])[0].dead == 2
    assert last_event(scene, dead_ids[0]) == ("dropped", "maria")


def test_settle_reaches_what_the_dry_run_showed_and_nothing_else(
    operator: Page, scene: Scene, dead_ids: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    admin = Operator(scene.config, scene.connection)
    gone, again, _ = dead_ids
    behind = ["further-1", "further-2"]  # in the order of ids
    bury(scene, behind)
    monkeypatch.setattr(dead, "MOST_LOOKED", 3)
    operator.goto(f"/dead?route={ROUTE}")
    operator.get_by_label("all 3 that match").check()
    operator.get_by_role("button", name="Drop…").click()
    expect(operator.get_by_role("heading", level=1)).to_have_text("Drop 3 dead envelopes?")
    admin.drop(ROUTE, [gone])  # so that one look reaches further
    admin.replay(ROUTE, [again])
    bury_due(scene, [again])
    operator.get_by_role("button", name="Drop 3").click()
    expect(operator.get_by_role("status")).to_contain_text("1 dropped")
    assert found_dead(scene) == {again, *behind}
    admin.drop(ROUTE, behind)


def test_settle_reaches_what_the_dry_run_showed_though_others_died_before_them(
    operator: Page, scene: Scene, dead_ids: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = ["ahead-1", "ahead-2"]  # in the order of ids
    monkeypatch.setattr(dead, "MOST_LOOKED", 3)
    operator.goto(f"/dead?route={ROUTE}")
    operator.get_by_label("all 3 that match").check()
    operator.get_by_role("button", name="Drop…").click()
    bury(scene, before)
    operator.get_by_role("button", name="Drop 3").click()
    expect(operator.get_by_role("status")).to_contain_text("3 dropped.")
    assert found_dead(scene) == {*before}
    Operator(scene.config, scene.connection).drop(ROUTE, before)


def test_settle_that_the_store_ends_says_what_is_done(
    operator: Page,
    visitor: Person,
    scene: Scene,
    dead_ids: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    operator.goto(f"/dead?route={ROUTE}")
    operator.get_by_label("Choose all on this page").check()
    operator.get_by_role("button", name="Drop…").click()
    monkeypatch.setattr(batching, "CALL_ROWS", 1)
    shard, client = scene.store(ROUTE).shard, scene.connection.client
    flight = shard.key("flight")

    def fail_after(script: str, _: float) -> None:
        if script == "drop" and client.zcard(shard.key("dead")) < len(dead_ids):
            client.delete(flight)
            client.set(flight, "of another type")

    monkeypatch.setattr(scene.connection, "observe", fail_after)
    operator.get_by_role("button", name="Drop 3").click()
    expect(operator.get_by_role("main")).to_contain_text("; before that: 1 dropped")
    monkeypatch.undo()
    client.delete(flight)
    assert found_dead(scene) == {*dead_ids[1:]}
    visitor.complaints.clear()  # the browser notes the 503


def test_settle_of_chosen_leaves_what_died_again(
    operator: Page, scene: Scene, dead_ids: list[str]
) -> None:
    admin = Operator(scene.config, scene.connection)
    again, gone, kept = dead_ids
    operator.goto(f"/dead?route={ROUTE}")
    operator.get_by_label("Choose all on this page").check()
    operator.get_by_role("button", name="Drop…").click()
    expect(operator.get_by_role("heading", level=1)).to_have_text("Drop 3 dead envelopes?")
    admin.drop(ROUTE, [gone])
    admin.replay(ROUTE, [again])
    bury_due(scene, [again])
    operator.get_by_role("button", name="Drop 3").click()
    expect(operator.get_by_role("status")).to_contain_text("1 dropped, 2 unknown.")
    assert found_dead(scene) == {again}
    assert admin.show(ROUTE, kept) is None


@pytest.mark.parametrize(("verb", "did"), [("Replay", "replayed"), ("Drop", "dropped")])
def test_dead_envelope_is_settled_from_its_own_page(
    operator: Page, scene: Scene, dead_ids: list[str], verb: str, did: str
) -> None:
    open_envelope(operator, dead_ids[0])
    operator.get_by_role("button", name=f"{verb}…").click()
    expect(operator.get_by_role("heading", level=1)).to_have_text(f"{verb} 1 dead envelope?")
    operator.get_by_role("button", name=f"{verb} 1").click()
    expect(operator.get_by_role("status")).to_contain_text(f"1 {did}.")
    assert found_dead(scene) == set(dead_ids[1:])
    assert last_event(scene, dead_ids[0]) == (did, "maria")


def test_dead_letters_are_counted_by_reason_and_error(operator: Page) -> None:
    operator.goto("/dead?route=invoice-dunning")
    row = operator.get_by_role("region", name="Why").get_by_role("row")
    expect(row.filter(has_text="unauthorized")).to_contain_text("ChannelClosedByBroker17")
    row.filter(has_text="too large").get_by_role("link").click()
    expect(operator.get_by_role("main")).to_contain_text("6 of 23 looked at match")


@pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])
def test_actions_on_dead_letters_stay_in_sight(operator: Page, size: ViewportSize) -> None:
    operator.set_viewport_size(size)
    operator.goto("/dead?route=invoice-dunning")
    assert operator.evaluate("document.documentElement.scrollHeight > 1.5 * innerHeight")
    operator.get_by_role("button", name="Filter").scroll_into_view_if_needed()
    operator.get_by_role("heading", name="Letters", exact=True).scroll_into_view_if_needed()
    for name in ("Replay…", "Drop…"):
        expect(operator.get_by_role("button", name=name)).to_be_in_viewport(ratio=1)


def test_dead_letters_of_many_go_on_behind_the_cursor(operator: Page, scene: Scene) -> None:
    ids = [f"many-{number}" for number in range(120)]
    bury(scene, ids)
    operator.goto(f"/dead?route={ROUTE}&error=Broken")
    seen = operator.locator("td.id a").all_inner_texts()
    while operator.get_by_role("link", name="Go on").count():
        with operator.expect_navigation():  # else the rows may be those which came so far
            operator.get_by_role("link", name="Go on").click()
        seen += operator.locator("td.id a").all_inner_texts()
    assert sorted(seen) == sorted(ids)
    Operator(scene.config, scene.connection).drop(ROUTE, ids)


def found_dead(scene: Scene) -> set[str]:
    return {each.entry.id for each in list_dead(Operator(scene.config, scene.connection), ROUTE)}


@pytest.fixture
def one_look(scene: Scene) -> Iterator[list[str]]:
    """As many dead as one look takes in; behind them are five of another reason."""
    first = [f"first-{number:04}" for number in range(MOST_LOOKED)]
    behind = [f"second-{number}" for number in range(5)]
    for at in range(0, len(first), 500):
        bury(scene, first[at : at + 500])
    bury(scene, behind, Reason.TOO_LARGE)
    yield first
    Operator(scene.config, scene.connection).drop(ROUTE, first + behind)


def test_all_that_match_are_those_of_the_page(
    operator: Page, scene: Scene, one_look: list[str]
) -> None:
    operator.goto(f"/dead?route={ROUTE}&reason=too_large")
    main = operator.get_by_role("main")
    expect(main).to_contain_text("None so far")
    expect(operator.get_by_label("that match")).to_have_count(0)
    operator.get_by_role("link", name="Go on").click()
    operator.get_by_label("all 5 that match").check()
    operator.get_by_role("button", name="Drop…").click()
    operator.get_by_role("link", name="Leave them").click()
    operator.get_by_label("all 5 that match").check()
    operator.get_by_role("button", name="Drop…").click()
    operator.get_by_role("button", name="Drop 5").click()
    expect(operator.get_by_role("status")).to_contain_text("5 dropped")
    expect(main).to_contain_text("None behind here")
    assert found_dead(scene) == set(one_look)
    operator.get_by_role("link", name="From the start").click()
    expect(main).to_contain_text("2,000 dead")
