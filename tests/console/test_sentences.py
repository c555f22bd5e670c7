"""What pages say of lateness, bounds and rates: a scene of its own, which tests make busy."""

import re
from collections.abc import Callable, Iterator
from itertools import count

import pytest
from playwright.sync_api import Browser, Page, expect

from duebridge.console.pages import envelope, search
from duebridge.envelope import Envelope
from duebridge.ports.publisher import Reason
from duebridge.producer import Producer
from duebridge.store.wire.transitions import Ack, Burial
from tests.console.conftest import Person
from tests.console.scene import Scene, due_now, filled_scene
from tests.console.screenshots import DESK, PHONE
from tests.console.served import served_console

ROUTE = "parcel-pickup"  # empty in a scene
_numbers = count()


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with filled_scene(tmp_path_factory.mktemp("busy")) as made:
        yield made


@pytest.fixture(scope="module")
def url(busy: Scene) -> Iterator[str]:
    with served_console(busy) as address:
        yield address


@pytest.fixture
def page(browser: Browser, url: str) -> Iterator[Page]:
    somebody = Person(browser, url)
    yield somebody.page
    somebody.context.close()
    assert somebody.complaints == []


def scheduled(scene: Scene, name: str, **given: str) -> str:
    """Schedule an envelope of an id of its own."""
    id_ = f"{name}-{next(_numbers)}"
    Producer(scene.config, scene.connection).schedule(
        ROUTE, b"{}", id=id_, **{"delay": "1d"} | given
    )
    return id_


def claimed(scene: Scene, names: list[str]) -> str:
    """Make envelopes that are in hand; gives the lease's token."""
    due_now(Producer(scene.config, scene.connection), ROUTE, names)
    store = scene.store(ROUTE)
    store.promote()
    claim = store.claim(len(names), 30_000)
    assert set(claim.ids) == set(names)
    return claim.token


def test_due_of_more_than_was_ever_delivered_tells_how_late(page: Page, busy: Scene) -> None:
    names = [f"gone-{number}" for number in range(10)]
    token = claimed(busy, names)
    busy.store(ROUTE).ack([Ack(each, token) for each in names])
    some = [Envelope.new(b"{}", id=f"flood-{number}", delay="10m") for number in range(1000)]
    Producer(busy.config, busy.connection).schedule_many(ROUTE, some)
    page.goto(f"/due?route={ROUTE}")
    main = page.get_by_role("main")
    expect(main).to_contain_text("seen at best: 1.0 a second")
    expect(main).to_contain_text("up to 15m 40s late")
    expect(main).to_contain_text("The queue grows to 940: more workers or fewer at once")
    expect(page.get_by_role("list", name="Legend").get_by_text("backlog")).to_be_visible()
    page.get_by_text("Figures as a table").click()
    table = page.get_by_role("region", name=f"Due in the next hour on {ROUTE}, figures")
    expect(table.get_by_role("columnheader", name="backlog")).to_be_visible()
    expect(table.get_by_role("row").filter(has_text="940")).to_have_count(1)


def test_search_that_stops_says_how_far_it_came(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    page.goto("/search?route=cart-reminder&header=kind&value=none")
    expect(page.get_by_role("main")).to_contain_text("at most 5,000 envelopes a page")
    expect(page.get_by_role("status")).to_have_text(re.compile("looked at: all there are$"))
    monkeypatch.setattr(search, "MOST_LOOKED", 60)
    page.reload()
    told = page.get_by_role("status")
    expect(told).to_have_text(re.compile(r"^\d+ looked at, up to \d{4}-.* UTC: there are more$"))
    expect(page.get_by_role("main")).to_contain_text("the search goes on")
    while page.get_by_role("link", name="Go on").count():
        with page.expect_navigation():  # else the link may not have come yet
            page.get_by_role("link", name="Go on").click()
    expect(told).to_have_text(re.compile("looked at: all there are$"))


def test_time_line_of_many_events_goes_on(
    page: Page, busy: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = scheduled(busy, "moved")
    producer = Producer(busy.config, busy.connection)
    for number in range(4):
        producer.reschedule(ROUTE, name, delay=f"{number + 2}d")
    monkeypatch.setattr(envelope, "EVENTS", 2)
    page.goto(f"/envelope?route={ROUTE}&id={name}")
    main = page.get_by_role("main")
    expect(main).to_contain_text("accepted")
    expect(main).to_contain_text("the journal goes on")
    pages = 1
    while page.get_by_role("link", name="Go on").count():
        with page.expect_navigation():
            page.get_by_role("link", name="Go on").click()
        expect(main).to_contain_text("rescheduled")
        pages += 1
    assert pages >= 3
    expect(main).not_to_contain_text("the journal goes on")


def test_time_line_that_the_cap_cut_says_so(page: Page, busy: Scene) -> None:
    name = scheduled(busy, "old")
    store = busy.store(ROUTE)
    store._journal_cap_bytes = 500
    for number in range(40):
        some = [Envelope.new(b"x", id=f"{name}-{number}", delay="1h")]
        store.schedule(some, max_delay_ms=10**9)
    page.goto(f"/envelope?route={ROUTE}&id={name}")
    expect(page.get_by_role("main")).to_contain_text("The journal was trimmed")


def test_overview_counts_and_rates_change_by_the_refresh(page: Page, busy: Scene) -> None:
    page.goto("/")
    row = page.get_by_role("row").filter(has_text=ROUTE)
    before = int(row.locator("[data-label=pending]").inner_text().replace(",", ""))
    for _ in range(300):
        scheduled(busy, "more")
    page.evaluate("htmx.trigger('#live', 'refresh')")
    expect(row.locator("[data-label=pending]")).to_have_text(f"{before + 300:,}")
    assert float(row.locator("[data-label='in / s']").inner_text()) >= 1, "300 in a minute"
    tile = page.locator(".tile").filter(has_text="accepted").locator("dd")
    assert float(tile.inner_text().removesuffix("/s")) >= 1


@pytest.mark.parametrize(("theme", "size"), [("light", DESK), ("dark", PHONE)])
@pytest.mark.parametrize("verb", ["Replay…", "Drop…"])
def test_look_at_dry_run_finds_nothing_in_the_way(
    browser: Browser,
    url: str,
    busy: Scene,
    axe: Callable[..., list[str]],
    theme: str,
    size: dict[str, int],
    verb: str,
) -> None:
    name = f"{next(_numbers)}-" + "dead" * 40
    burial = Burial(id=name, reason=Reason.INVALID, is_failure=True, is_unsure=False, error="E\n")
    busy.store(ROUTE).bury(claimed(busy, [name]), [burial])
    somebody = Person(browser, url, viewport=size, color_scheme=theme)
    page = somebody.page
    page.goto(f"/dead?route={ROUTE}")
    page.get_by_label("that match").check()
    page.get_by_role("button", name=verb).click()
    expect(page.get_by_role("main")).to_contain_text("A dry run: nothing was changed yet")
    assert axe(page) == []
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    somebody.context.close()
    assert somebody.complaints == []
