"""What each page costs this process in CPU, beside a million pending envelopes.

`python -m tests.console.cost [PENDING]`
"""

import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from urllib.request import urlopen

from duebridge.envelope import Envelope
from duebridge.producer import Producer
from tests.console.scene import Scene, filled_scene
from tests.console.screenshots import PAGES
from tests.console.served import served_console

PENDING, TIMES = 1_000_000, 7
MORE = {
    "search by key": "/search?route=cart-reminder&key=nobody",
    "search by header": "/search?route=cart-reminder&header=tenant&value=nobody",
    "envelope amid": "/envelope?route=cart-reminder&id=filler-500000",
    "due week": "/due?horizon=week",
}


def fill(scene: Scene, count: int) -> None:
    """Schedule so many more envelopes on one route, over a week."""

    def some() -> Iterator[Envelope]:
        for number in range(count):
            due_s = 60 + number * 7919 % 604_800
            headers = {"tenant": f"shop-{number % 4}", "kind": "filler"}
            key = str(number).encode()
            yield Envelope.new(
                b"x" * 200, id=f"filler-{number}", delay=f"{due_s}s", key=key, headers=headers
            )

    for _ in Producer(scene.config, scene.connection).schedule_stream("cart-reminder", some()):
        pass


def get(address: str) -> int:
    """Return the bytes of a page; in a process of its own, so that only the server is counted."""
    with urlopen(address) as response:  # noqa: S310 - our own
        return len(response.read())


def main() -> None:
    """Print the median CPU of each page, and the store's slowest calls."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else PENDING
    with (
        tempfile.TemporaryDirectory() as name,
        filled_scene(Path(name)) as scene,
        served_console(scene) as address,
        ProcessPoolExecutor(1, get_context("spawn")) as client,
    ):
        fill(scene, count)
        ask = scene.connection.client.execute_command
        ask("CONFIG", "SET", "slowlog-log-slower-than", "5000")
        ask("SLOWLOG", "RESET")
        for page, path in {**PAGES, **MORE}.items():
            spent = [_cost(client, address + path) for _ in range(TIMES)]
            print(f"{page:18} {median(spent):6.1f} ms of CPU, at most {max(spent):.1f}")  # noqa: T201
        slow = [call["duration"] for call in scene.connection.client.slowlog_get(-1)]
        print(f"calls of the store above 5 ms: {len(slow)}, the longest {max(slow, default=0)} µs")  # noqa: T201


def _cost(client: ProcessPoolExecutor, address: str) -> float:
    before = time.process_time()
    client.submit(get, address).result()
    return (time.process_time() - before) * 1000


if __name__ == "__main__":
    main()
