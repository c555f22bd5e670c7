"""`make demo KEEP=1` by somebody who has read nothing: what it prints, and a browser."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.console.conftest import Person
from tests.support.checkout import ROOT
from tests.support.servers import listens, wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]

PLAYED_WITHIN_S = 240.0  # half a minute of flights, and brokers that may have to start
ENDED_WITHIN_S = 90.0
KEPT = re.compile(
    r"(?P<count>\d+) calls wait, (?P<id>\S+) is one\.\s+(?P<held>\S+) is held: .*"
    r"The console: (?P<url>http://127\.0\.0\.1:(?P<port>\d+))/",
    re.DOTALL,
)


class Demo:
    """The demo, and what it has printed so far."""

    def __init__(self, output: Path) -> None:
        self._output = output
        with output.open("wb") as file:
            self.process = subprocess.Popen(
                [sys.executable, str(ROOT / "deploy/demo/demo.py")],
                env={**os.environ, "KEEP": "1"},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )

    @property
    def printed(self) -> str:
        return self._output.read_text()

    def kept(self) -> re.Match[str]:
        """What it says once the console is there."""
        wait_until(
            lambda: KEPT.search(self.printed) or self.process.poll() is not None,
            "the console",
            PLAYED_WITHIN_S,
        )
        found = KEPT.search(self.printed)
        assert found, self.printed
        return found

    def stop(self) -> int:
        """Press Ctrl-C; what it exits with."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        return self.process.wait(ENDED_WITHIN_S)


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Demo]:
    demo = Demo(tmp_path / "printed")
    try:
        yield demo
    finally:
        demo.stop()


@pytest.fixture
def stranger(demo: Demo, browser: Browser) -> Iterator[Page]:
    """Somebody at the address that was printed."""
    somebody = Person(browser, demo.kept()["url"])
    somebody.page.goto("/")
    yield somebody.page
    somebody.context.close()
    assert somebody.complaints == []


def test_stranger_finds_cancels_and_understands_by_what_is_on_the_screen(
    stranger: Page, demo: Demo
) -> None:
    kept, main = demo.kept(), stranger.get_by_role("main")
    why = stranger.get_by_role("status").filter(has_text=f"due envelopes of {kept['held']} wait")
    expect(why).to_contain_text("nothing is lost")
    expect(why).to_contain_text("UnknownTopicOrPartition")

    stranger.get_by_role("searchbox", name="Find an envelope by its id").fill(kept["id"])
    stranger.keyboard.press("Enter")
    expect(stranger.get_by_role("heading", level=1)).to_have_text(kept["id"])
    expect(main).to_contain_text("boarding starts")
    stranger.get_by_text("Cancel…").click()
    stranger.get_by_role("button", name="Cancel the envelope").click()
    expect(stranger.get_by_role("status")).to_contain_text("will not be delivered")

    stranger.get_by_role("navigation").get_by_role("link", name="Due", exact=True).click()
    due = main.get_by_text(re.compile(r"[1-9][\d,]* deliver(y|ies) in the next hour"))
    expect(due.first).to_be_visible()
    expect(stranger.locator("[data-chart] canvas").first).to_be_visible()

    assert demo.stop() == 0, demo.printed
    assert not listens(int(kept["port"])), "nothing outlives Ctrl-C"
