"""Notices another configuration while the worker runs, and has it taken over or refused.

The file's text is compared, about once a second: what a directory of links (a mounted ConfigMap)
or an editor does to the file itself does not matter. A text is taken once two looks in a row found
it, so that no half-written one is. SIGHUP takes what is there at once, and again if it is the same:
what `${file:...}` stands for may have changed.
"""

from collections.abc import Callable
from pathlib import Path

import structlog

from bridge import metrics
from bridge.config import Config
from bridge.config_file import load_config_text, read_config_text
from bridge.errors import BridgeError, ConfigError
from bridge.swap import Changes, SwapRefused

LOOK_EVERY_S = 1.0

log = structlog.get_logger()


class Reload:
    """Watches one file for one worker process. What is refused leaves everything as it is."""

    def __init__(self, path: Path, text: str, swap: Callable[[Config], Changes]) -> None:
        """Watch `path`, whose `text` is in effect; `swap` takes a configuration over or raises."""
        self._path = path
        self._swap = swap
        self._settled = text  # in effect, or refused for good
        self._seen = text
        self._told = ""

    def run_once(self, *, is_asked: bool = False) -> None:
        """Look at the file and take over what stands in it; logs what came of it, once."""
        try:
            text = read_config_text(self._path)
            is_steady, self._seen = text == self._seen, text
            if is_asked or (is_steady and text != self._settled):
                self._take(text)
        except BridgeError as error:
            self._refuse(error, is_asked=is_asked)

    def _take(self, text: str) -> None:
        try:
            changes = self._swap(load_config_text(text, str(self._path)))
        except ConfigError as error:
            # else it is tried again at each look, until the store has it otherwise
            if not (isinstance(error, SwapRefused) and error.may_pass):
                self._settled = text
            raise
        self._settled, self._told = text, ""
        metrics.config_swapped.inc()
        log.info("config_swapped", **changes._asdict())

    def _refuse(self, error: BridgeError, *, is_asked: bool) -> None:
        """Say why, and that once: the same is found at each look until somebody mends it."""
        if str(error) == self._told and not is_asked:
            return
        self._told = str(error)
        metrics.config_refused.inc()
        log.error("config_refused", reasons=str(error).splitlines())
