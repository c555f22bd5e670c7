"""Each page, at a desk and on a phone, light and dark, for people and for screen readers."""

import re
from collections.abc import Callable, Iterator
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Browser, Page, ViewportSize, expect

from duebridge.store.workers import Workers
from tests.console.conftest import Person, Sessions
from tests.console.scene import HOSTILE_ID, NAMED_ID, PASSWORD
from tests.console.screenshots import DESK, PAGES, PHONE
from tests.console.served import OPERATE

MORE_PAGES = {
    "search-form": "/search",
    "hostile": f"/envelope?{urlencode({'route': 'trial-expiry', 'id': HOSTILE_ID})}",
    "gone": "/envelope?route=order-timeout&id=never-was",
    "due-week": "/due?horizon=week&route=cart-reminder",
    "dead-routes": "/dead",
    "no-dead": "/dead?route=trial-expiry",
    "no-route": "/route?route=nowhere",
}
LOOKS = [("light", DESK), ("dark", PHONE)]
OF_A_LOOK = ("color-contrast", "target-size")  # all else is of the HTML, which has no looks
# Of an element's background, or of that behind it where it has none: 0 to 255.
LIGHTNESS = """element => {
  const own = (one) => getComputedStyle(one).backgroundColor.match(/[\\d.]+/g).map(Number);
  let found = own(element);
  while (found[3] === 0) { element = element.parentElement; found = own(element); }
  return (found[0] + found[1] + found[2]) / 3;
}"""


@pytest.fixture(scope="module", params=LOOKS, ids=lambda look: f"{look[0]}-{look[1]['width']}")
def look(request: pytest.FixtureRequest) -> tuple[str, ViewportSize]:
    """Return a theme and the size of a device."""
    theme, size = request.param
    return theme, size


@pytest.fixture(scope="module")
def looker(look: tuple[str, ViewportSize], browser: Browser, address: str) -> Iterator[Person]:
    """Who may operate, with one device and theme."""
    theme, size = look
    one = Person(browser, address, viewport=size, color_scheme=theme)
    one.log_in(OPERATE)
    yield one
    one.context.close()


ALL_PAGES = {**PAGES, **MORE_PAGES}


@pytest.mark.parametrize("path", ALL_PAGES.values(), ids=ALL_PAGES)
def test_look_at_page_finds_nothing_in_the_way(
    path: str, look: tuple[str, ViewportSize], looker: Person, axe: Callable[..., list[str]]
) -> None:
    page = looker.page
    looker.complaints.clear()
    page.goto(path)
    expect(page.get_by_role("main")).to_be_visible()
    assert axe(page, *(OF_A_LOOK if look[0] == "dark" else ())) == []
    wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    assert wide <= 0, "the page is wider than the window"
    assert [text for text in looker.complaints if "404" not in text] == []


@pytest.mark.parametrize(("theme", "size"), LOOKS)
def test_look_at_log_in_finds_nothing_in_the_way(
    theme: str,
    size: ViewportSize,
    browser: Browser,
    address: str,
    axe: Callable[..., list[str]],
) -> None:
    stranger = Person(browser, address, viewport=size, color_scheme=theme)
    page = stranger.page
    page.goto("/login")
    assert axe(page) == []
    page.get_by_label("Token").fill("guessed")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_contain_text("No such token")
    assert axe(page) == []
    wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    assert wide <= 0, "the page is wider than the window"
    assert [text for text in stranger.complaints if "401" not in text] == []
    stranger.context.close()


def test_overview_of_held_target_says_why(operator: Page) -> None:
    notice = operator.get_by_role("status").filter(has_text="orders:order-timeouts")
    expect(notice).to_contain_text("UnknownTopicOrPartitionError")
    expect(notice).to_contain_text("12 due envelopes of order-timeout wait; nothing is lost")
    row = operator.get_by_role("row").filter(has_text="order-timeout").first
    expect(row).to_contain_text("held")
    billing = operator.get_by_role("row").filter(has_text="billing")
    expect(billing).to_contain_text("not reached")
    expect(billing).to_contain_text("connection refused")


def test_first_broker_has_one_line_above_it(operator: Page) -> None:
    first = operator.get_by_role("region", name="Brokers").get_by_role("cell").first
    assert first.evaluate("cell => getComputedStyle(cell).borderTopWidth") == "0px"


def test_figures_of_a_broker_stay_on_one_line(operator: Page) -> None:
    figures = operator.get_by_role("region", name="Brokers").get_by_text("of 10,000 in flight")
    height = figures.evaluate("text => text.getBoundingClientRect().height")
    line = figures.evaluate("text => parseFloat(getComputedStyle(text).lineHeight)")
    assert height < 1.5 * line


def test_overview_refreshes_itself_without_a_click(operator: Page) -> None:
    clock = operator.locator("#clock")
    clock.evaluate("element => element.textContent = 'before'")
    operator.evaluate("htmx.trigger('#live', 'refresh')")
    expect(clock).to_contain_text("live")
    assert operator.locator("#live").get_attribute("hx-trigger") == "every 5s, refresh"


def test_refresh_waits_while_a_person_has_the_focus_there(
    person: Person, sessions: Sessions
) -> None:
    operator = person.resume(sessions[OPERATE])  # a clock is of the whole context
    operator.clock.install(time=0)
    operator.clock.pause_at(1)  # what it asks for by the clock would take the focus away
    operator.goto("/")
    link = operator.get_by_role("main").get_by_role("link", name="cart-reminder").first
    link.focus()
    asked: list[str] = []
    operator.on("request", lambda request: asked.append(request.url))
    operator.evaluate("htmx.trigger('#live', 'refresh')")
    assert asked == []
    link.blur()
    with operator.expect_response("**/"):
        operator.evaluate("htmx.trigger('#live', 'refresh')")


def test_route_shows_settings_and_what_falls_due(operator: Page) -> None:
    operator.goto("/route?route=invoice-dunning")
    main = operator.get_by_role("main")
    expect(main).to_contain_text("8 failures; fixed from 30s")
    expect(main).to_contain_text("billing:dunning")
    expect(operator.locator("[data-chart] canvas")).to_be_visible()
    operator.get_by_text("Figures as a table").click()
    table = operator.get_by_role("region", name="Due in the next hour, figures")
    expect(table.get_by_role("row")).to_have_count(31)


@pytest.mark.parametrize(
    ("route", "shown"),
    [
        ("order-timeout", r"orders:order-timeouts\s+held$"),
        ("order-timeout", r"orders:order-timeouts-dlt\s+well$"),
        ("cart-reminder", r"orders:cart-reminders\s+well$"),
        ("invoice-dunning", r"billing:dunning.*\s+not reached by 1 of 2$"),
        ("cart-reminder", r"^kept in the store$"),
    ],
)
def test_route_says_how_its_targets_stand(operator: Page, route: str, shown: str) -> None:
    operator.goto(f"/route?route={route}")
    facts = operator.get_by_role("main").get_by_role("definition")
    expect(facts.filter(has_text=re.compile(shown))).to_have_count(1)


def test_due_of_each_horizon_draws_a_forecast(operator: Page) -> None:
    operator.goto("/due?route=cart-reminder")
    for horizon in ("day", "week", "hour"):
        operator.get_by_role("navigation", name="Horizon").get_by_text(horizon).click()
        main = operator.get_by_role("main")
        expect(main).to_contain_text(f"in the next {horizon}")
        expect(main).to_contain_text("seen at best: 30 a second")
        expect(operator.locator("[data-chart] canvas")).to_be_visible()


def test_due_without_a_worker_promises_nothing(
    operator: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Workers, "read_if_allowed", lambda _: [])
    operator.goto("/due?route=cart-reminder")
    main = operator.get_by_role("main")
    expect(main).to_contain_text("no worker serves this route: nothing is delivered until one runs")
    expect(main).not_to_contain_text("on time")


def test_axes_of_a_forecast_are_named_in_the_font_of_the_page(operator: Page) -> None:
    operator.add_init_script(
        """window.drawn = [];
        const write = CanvasRenderingContext2D.prototype.fillText;
        CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
          drawn.push([text, this.font]);
          return write.call(this, text, ...rest);
        };"""
    )
    operator.goto("/due?route=order-timeout")
    operator.goto("/due?route=cart-reminder")
    expect(operator.locator("[data-chart] canvas")).to_be_visible()
    drawn = dict(operator.evaluate("drawn"))
    family = operator.evaluate("getComputedStyle(document.body).fontFamily")
    assert drawn["envelopes"].endswith(family)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_chosen_horizon_looks_chosen(operator: Page, theme: str) -> None:
    operator.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
    operator.goto("/due?horizon=day")
    colours = [
        operator.get_by_role("navigation", name="Horizon").get_by_text(each).evaluate(LIGHTNESS)
        for each in ("hour", "day")
    ]
    assert colours[1] - colours[0] >= 8, "it is no lighter than what it lies on"


def test_phone_shows_every_page_of_the_navigation(operator: Page) -> None:
    operator.set_viewport_size(PHONE)
    for name in ("Overview", "Search", "Due", "Dead letters", "Workers", "Configuration"):
        link = operator.get_by_role("navigation", name="Pages").get_by_role("link", name=name)
        expect(link).to_be_in_viewport(ratio=1)


def test_workers_show_lanes_windows_and_lag(operator: Page) -> None:
    operator.get_by_role("link", name="Workers").click()
    main = operator.get_by_role("main")
    for text in ("bridge-7c9f-x2m4q", "4,988", "5,000", "1,284", "connection refused"):
        expect(main).to_contain_text(text)


def test_configuration_masks_secrets(operator: Page) -> None:
    operator.get_by_role("link", name="Configuration").click()
    main = operator.get_by_role("main")
    expect(main).to_contain_text("rabbit.shop.internal")
    expect(main).to_contain_text("***")
    assert PASSWORD not in operator.content()


# --- keys and themes ---


def test_keys_reach_the_content_and_the_search(operator: Page) -> None:
    operator.goto("/workers")
    operator.keyboard.press("Tab")
    expect(operator.get_by_role("link", name="Skip to the content")).to_be_focused()
    operator.keyboard.press("Enter")
    expect(operator.get_by_role("main")).to_be_focused()
    operator.keyboard.press("/")
    find = operator.get_by_role("searchbox", name="Find an envelope by its id")
    expect(find).to_be_focused()
    expect(find).to_have_value("")
    operator.keyboard.type(f"{NAMED_ID}\n")
    expect(operator.get_by_role("heading", level=1)).to_have_text(NAMED_ID)


def test_theme_switch_outlives_the_page(operator: Page) -> None:
    switch = operator.get_by_role("button", name="Theme: system").first
    switch.click()
    assert operator.evaluate("document.documentElement.dataset.theme") == "dark"
    background = "getComputedStyle(document.body).backgroundColor"
    dark = operator.evaluate(background)
    operator.goto("/workers")
    assert operator.evaluate(background) == dark == "rgb(13, 16, 21)"
