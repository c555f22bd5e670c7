"""Debian's Chromium, driven by Playwright: one browser, a fresh context for each look."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

from tests.support.checkout import missing

CHROMIUM = "/usr/bin/chromium"
QUIET = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--force-color-profile=srgb"]


@contextmanager
def open_browser() -> Iterator[Browser]:
    """Give the browser; skips where it is not installed, and fails in CI."""
    if not os.access(CHROMIUM, os.X_OK):
        missing("chromium", "run `make tools`")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        try:
            yield browser
        finally:
            browser.close()
