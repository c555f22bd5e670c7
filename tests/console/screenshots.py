"""Pictures of every page for docs/console, light and dark, at a desk and on a phone.

`python -m tests.console.screenshots [FOLDER]`
"""

import sys
import tempfile
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlencode

from playwright.sync_api import Browser, ViewportSize

from tests.console.browser import open_browser
from tests.console.pictures import write_picture
from tests.console.scene import NAMED_ID, filled_scene
from tests.console.served import OPERATE, served_console, token_file
from tests.support.checkout import ROOT

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


def take(browser: Browser, address: str, folder: Path) -> None:
    """Write NAME-THEME-DEVICE.png of every page, and of the log-in."""
    blank = browser.new_page()
    for look in LOOKS:
        scale = 1 if look.device == "desk" else 2
        context = browser.new_context(
            viewport=look.size,
            color_scheme=look.theme,
            device_scale_factor=scale,  # type: ignore[arg-type]
        )
        page = context.new_page()
        page.goto(f"{address}/login")
        write_picture(blank, page.screenshot(), folder / f"login-{look}.png")
        page.fill("#token", OPERATE)
        page.click("text=Log in >> nth=-1")
        for name, path in PAGES.items():
            page.goto(address + path)
            page.wait_for_function("!document.querySelector('[data-chart]:empty')")
            write_picture(blank, page.screenshot(), folder / f"{name}-{look}.png")
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
        take(browser, address, folder)


if __name__ == "__main__":
    main()
