"""Debian's Chromium, driven by Playwright: one browser, a fresh context for each look."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

from tests.support.checkout import missing

CHROMIUM = ("chromium-headless-shell", "chromium")  # the first takes a third of the CPU
QUIET = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--force-color-profile=srgb"]
# The pages of a context share a process, and none is started before it is wanted.
FEW = [
    "--process-per-site",
    "--renderer-process-limit=1",
    "--disable-features=SpareRendererForSitePerProcess",
]


@contextmanager
def open_browser() -> Iterator[Browser]:
    """Give the browser; skips where it is not installed, and fails in CI."""
    program = next(filter(None, map(shutil.which, CHROMIUM)), None)
    program = program or missing("chromium", "run `make tools`")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=[*QUIET, *FEW])
        try:
            yield browser
        finally:
            browser.close()
