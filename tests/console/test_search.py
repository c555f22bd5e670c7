"""Finding an envelope: by id anywhere, by key, header and due window on one route."""

import pytest
from playwright.sync_api import Page, expect

from duebridge.producer import Producer
from tests.console.conftest import Person
from tests.console.scene import NAMED_ID, Scene


def test_find_by_id_shows_the_envelope_at_once(operator: Page) -> None:
    operator.get_by_role("searchbox", name="Find an envelope by its id").fill(NAMED_ID)
    operator.keyboard.press("Enter")
    expect(operator.get_by_role("heading", level=1)).to_have_text(NAMED_ID)
    main = operator.get_by_role("main")
    for text in ("pending", "customer-1093", '"title": "Desk lamp"', "traceparent", "accepted"):
        expect(main).to_contain_text(text)


def test_find_unknown_id_says_so(operator: Page) -> None:
    operator.goto("/search?id=never-was")
    expect(operator.get_by_role("main")).to_contain_text("Nothing found")
    expect(operator.get_by_role("status")).to_contain_text("5 routes asked")


def test_find_id_that_the_store_has_no_more_leads_to_its_time_line(
    operator: Page, scene: Scene
) -> None:
    producer = Producer(scene.config, scene.connection)
    producer.schedule("parcel-pickup", b"{}", id="gone", delay="5d")
    producer.cancel("parcel-pickup", "gone")
    operator.goto("/search?id=gone")
    operator.get_by_role("main").get_by_role("link", name="parcel-pickup").click()
    expect(operator.get_by_role("main")).to_contain_text("cancelled")
    operator.goto("/search?route=parcel-pickup&id=gone")
    expect(operator.get_by_role("heading", level=1)).to_have_text("gone")


@pytest.mark.parametrize("blanks", ["{} ", " {}", "{}\t"])
def test_find_id_with_a_blank_pasted_beside_it(blanks: str, operator: Page) -> None:
    find = operator.get_by_role("searchbox", name="Find an envelope by its id")
    find.fill(blanks.format(NAMED_ID))
    operator.keyboard.press("Enter")
    expect(operator.get_by_role("heading", level=1)).to_have_text(NAMED_ID)


def test_find_id_that_ends_in_a_blank(operator: Page, scene: Scene) -> None:
    producer = Producer(scene.config, scene.connection)
    producer.schedule("parcel-pickup", b"{}", id="blank ", delay="5d")
    operator.goto("/search?id=blank%20")
    expect(operator.get_by_role("main")).to_contain_text("Due in")
    producer.cancel("parcel-pickup", "blank ")


def test_search_by_id_says_that_other_fields_do_not_count(operator: Page) -> None:
    operator.goto(f"/search?id={NAMED_ID}&state=dead&key=nobody")
    expect(operator.get_by_role("status")).to_contain_text("5 routes asked for the id alone")
    expect(operator.get_by_role("link", name=NAMED_ID, exact=True)).to_be_visible()


@pytest.mark.parametrize(
    ("fields", "some"),
    [
        ({"Key": "customer-0"}, "cart-1000"),
        ({"Header": "tenant", "Value of the header": "shop-3"}, "cart-1003"),
        ({"Header": "kind"}, "cart-1000"),
    ],
)
def test_search_by_content_finds_it(fields: dict[str, str], some: str, operator: Page) -> None:
    operator.goto("/search")
    form = operator.get_by_role("main")
    form.get_by_label("Route").select_option("cart-reminder")
    for label, text in fields.items():
        form.get_by_label(label, exact=True).fill(text)
    form.get_by_role("button", name="Search").click()
    expect(form.get_by_role("link", name=some, exact=True)).to_be_visible()
    expect(operator.get_by_role("status")).to_contain_text("looked at")


def test_search_by_due_window_finds_what_is_due_then(operator: Page) -> None:
    operator.goto("/search?route=trial-expiry&from=2100-01-01T00:00:00")
    expect(operator.get_by_role("main")).to_contain_text("Nothing found")
    operator.goto("/search?route=trial-expiry&to=2100-01-01T00:00:00")
    expect(operator.get_by_role("main")).to_contain_text("44 envelopes")


def test_search_of_many_goes_on_behind_the_cursor(operator: Page) -> None:
    operator.goto("/search?route=cart-reminder")
    seen: list[str] = []
    while True:
        seen += operator.locator("td.id a").all_inner_texts()
        more = operator.get_by_role("link", name="Go on")
        if not more.count():
            break
        with operator.expect_navigation():  # else the rows may be those which came so far
            more.click()
    assert len(seen) == len(set(seen)) == 90 + 14 + 3


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ("key=x", "route: expected one"),
        ("route=cart-reminder&from=yesterday", "from: expected an instant"),
        ("route=cart-reminder&state=gone", "state: expected one of"),
        ("route=cart-reminder&value=x", "header: expected the name"),
        ("route=cart-reminder&cursor=AAAA", "cursor: expected"),
    ],
)
def test_search_for_nonsense_says_what_is_expected(
    query: str, error: str, operator: Page, visitor: Person
) -> None:
    operator.goto(f"/search?{query}")
    expect(operator.get_by_role("alert")).to_contain_text(error)
    visitor.complaints.clear()  # the browser notes the 422


def test_envelope_shows_each_try_with_its_error(operator: Page) -> None:
    operator.goto("/envelope?route=cart-reminder&id=cart-retry-1")
    line = operator.get_by_role("list").filter(has_text="accepted")
    expect(line).to_contain_text("retried")
    expect(line).to_contain_text("KafkaTimeoutError")
    expect(line).to_contain_text("next try by")
    expect(operator.get_by_role("main")).to_contain_text("the broker may have it")
