"""Ids, keys, headers and bodies that nobody should send: shown, and nothing of them runs."""

import pytest
from playwright.sync_api import Page, expect

from tests.console.scene import HOSTILE, HOSTILE_ID, LONG_BODY


def nothing_ran(page: Page) -> bool:
    return page.title() != "ran" and page.locator("main img, main script").count() == 0


def test_hostile_envelope_is_shown_as_it_is(operator: Page) -> None:
    operator.get_by_role("searchbox", name="Find an envelope by its id").fill(HOSTILE_ID)
    operator.keyboard.press("Enter")
    expect(operator.get_by_role("heading", level=1)).to_have_text(HOSTILE_ID)
    expect(operator.get_by_role("region", name="Headers")).to_contain_text(HOSTILE)
    expect(operator.get_by_role("region", name="Headers")).to_contain_text("0x00ff")
    body = operator.get_by_role("region", name="Body").inner_text()
    assert body == LONG_BODY[: len(body)].decode()
    assert len(body) == 16 * 1024, "a body is shown without a bound"
    expect(operator.get_by_role("main")).to_contain_text("the first 16.0 KiB")
    assert nothing_ran(operator)


def test_hostile_list_and_query_are_shown_as_they_are(operator: Page) -> None:
    operator.goto("/search?route=trial-expiry&from=2026-01-01T00:00:00")
    expect(operator.get_by_role("link", name=HOSTILE_ID, exact=True)).to_be_visible()
    assert nothing_ran(operator)
    operator.get_by_role("main").get_by_label("Id", exact=True).fill(f"'{HOSTILE}")
    operator.get_by_role("button", name="Search").click()
    expect(operator.get_by_role("main")).to_contain_text("Nothing found")
    assert nothing_ran(operator)


@pytest.mark.parametrize(
    ("id", "texts"),
    [
        ("binary-1", ["3.5 KiB · hex · the first 2.0 KiB", "00000000  00 01 fe ff"]),
        ("tombstone-1", ["none: a tombstone"]),
        ("text-1", ["text", "Dear customer,"]),
    ],
)
def test_body_is_previewed_by_what_it_holds(id: str, texts: list[str], operator: Page) -> None:
    operator.goto(f"/envelope?route=trial-expiry&id={id}")
    for text in texts:
        expect(operator.get_by_role("main")).to_contain_text(text)
