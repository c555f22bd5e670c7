"""Pictures of every page for docs/console, light and dark, at a desk and on a phone.

`python -m tests.console.screenshots [FOLDER]`
"""

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlencode

from playwright.sync_api import Browser, Page, ViewportSize

from duebridge.envelope import Envelope
from duebridge.producer import Producer
from duebridge.store.delay_store import DelayStore
from duebridge.store.wire.leases import Claim
from duebridge.store.wire.transitions import Retry
from tests.console.browser import open_browser
from tests.console.pictures import write_picture
from tests.console.scene import (
    HOUR_MS,
    LEASE_MS,
    MINUTE_MS,
    NAMED_ID,
    REFUSED,
    Scene,
    filled_scene,
)
from tests.console.served import OPERATE, served_console, token_file
from tests.support.checkout import ROOT
from tests.support.servers import wait_until

FOLDER = ROOT / "docs" / "console"
PAGES = {
    "overview": "/",
    "route": "/route?route=order-timeout",
    "search": "/search?route=cart-reminder&header=tenant&value=shop-1",
    "envelope": f"/envelope?{urlencode({'route': 'order-timeout', 'id': NAMED_ID})}",
    "due": "/due?route=cart-reminder&horizon=hour",
    "dead": "/dead?route=invoice-dunning",
    "workers": "/workers",
    "configuration": "/configuration",
}
TRIED_ID = "invoice-2207:reminder"
TRIED = {"route": "invoice-dunning", "id": TRIED_ID}
PICTURED = {**PAGES, "envelope": f"/envelope?{urlencode(TRIED)}"}
INVOICE = {"invoice": 2207, "customer": "c-1093", "amount": 129.90, "currency": "EUR", "step": 2}
LOST = "StreamLostError\nthe connection was lost before a confirm; the broker may have it"
TRACEPARENT = "00-7d1f2a3be4c5960718293a4b5c6d7e8f-0a1b2c3d4e5f6071-01"
USUAL, CAMPAIGN = 24_000, 21_000
FROM_MS, FOR_MS = 16 * MINUTE_MS, 16 * MINUTE_MS  # of the campaign: more than was ever delivered
PATIENCE_MS = 120_000
TALL = {("overview", "desk"): 1100}  # so that it shows what falls due
DESK, PHONE = ViewportSize(width=1280, height=860), ViewportSize(width=390, height=844)


class Look(NamedTuple):
    """How a page is looked at."""

    theme: str
    device: str
    size: ViewportSize

    def __str__(self) -> str:
        return f"{self.theme}-{self.device}"


LOOKS = [
    Look(theme, device, size)
    for device, size in (("desk", DESK), ("phone", PHONE))
    for theme in ("light", "dark")
]


def add_campaign(scene: Scene) -> None:
    """Schedule what will be late: an hour of reminders, and a campaign amid them."""
    some = (
        Envelope.new(
            b'{"kind": "cart", "campaign": "weekend"}',
            id=f"weekend-{number:05}",
            delay=f"{delay_ms}ms",
            headers={"kind": "campaign", "tenant": f"shop-{number % 4}"},
        )
        for number, delay_ms in enumerate([*_evenly(USUAL), *_in_a_peak(CAMPAIGN)])
    )
    Producer(scene.config, scene.connection).schedule_many("cart-reminder", some)


def _evenly(count: int) -> Iterator[int]:
    return (10_000 + number * HOUR_MS // count for number in range(count))


def _in_a_peak(count: int) -> Iterator[int]:
    """Delays that rise to a peak and fall: halfway between two places that are spread evenly."""
    places = ((number * 7919 % count, number * 6353 % count) for number in range(count))
    return (FROM_MS + (one + other) * FOR_MS // (2 * count) for one, other in places)


def add_tried(scene: Scene) -> None:
    """Have an envelope fail twice; it waits for its next try."""
    Producer(scene.config, scene.connection).schedule(
        TRIED["route"],
        json.dumps(INVOICE).encode(),
        id=TRIED_ID,
        delay="1ms",
        headers={"tenant": "shop-2", "traceparent": TRACEPARENT},
        content_type="application/json",
    )
    store = scene.store(TRIED["route"], TRIED_ID)
    for error, delay_ms in ((LOST, 0), (REFUSED, 8 * MINUTE_MS)):
        token, is_unsure = _leased(store), error is LOST
        tried = Retry(
            id=TRIED_ID,
            delay_ms=delay_ms,
            is_failure=not is_unsure,
            is_unsure=is_unsure,
            error=error,
        )
        store.retry(token, [tried])


def _leased(store: DelayStore) -> str:
    """Claim until the envelope is in hand, with what else is due; gives the lease's token."""
    claims: list[Claim] = []

    def is_in_hand() -> bool:
        store.promote()
        claims.append(store.claim(100, LEASE_MS))
        return TRIED_ID in claims[-1].ids

    wait_until(is_in_hand, "the envelope to be due")
    return claims[-1].token


def open_dry_run(page: Page, address: str) -> None:
    """Choose all dead letters of a page, and ask what a replay would do."""
    page.goto(f"{address}/dead?route=invoice-dunning&reason=unauthorized")
    page.check("[name=all]")
    page.click("button[value=replay]")


def take(browser: Browser, address: str, folder: Path) -> None:
    """Write NAME-THEME-DEVICE.png of every page, of a dry run, and of the log-in."""
    blank = browser.new_page()
    for look in LOOKS:
        scale = 1 if look.device == "desk" else 2
        context = browser.new_context(
            viewport=look.size,
            color_scheme=look.theme,
            device_scale_factor=scale,  # type: ignore[arg-type]
        )
        context.set_default_timeout(PATIENCE_MS)
        page = context.new_page()
        page.goto(f"{address}/login")
        write_picture(blank, page.screenshot(), folder / f"login-{look}.png")
        page.fill("#token", OPERATE)
        page.click("text=Log in >> nth=-1")
        for name, path in PICTURED.items():
            height = TALL.get((name, look.device), look.size["height"])
            page.set_viewport_size(ViewportSize(width=look.size["width"], height=height))
            page.goto(address + path)
            page.wait_for_function("!document.querySelector('[data-chart]:empty')")
            write_picture(blank, page.screenshot(), folder / f"{name}-{look}.png")
        open_dry_run(page, address)
        write_picture(blank, page.screenshot(), folder / f"dry-run-{look}.png")
        context.close()


def main() -> None:
    """Take the pictures."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as name,
        filled_scene(Path(name)) as scene,
        served_console(scene, token_file(Path(name))) as address,
        open_browser() as browser,
    ):
        add_campaign(scene)
        add_tried(scene)
        take(browser, address, folder)


if __name__ == "__main__":
    main()
