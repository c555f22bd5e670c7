"""Clients that post while a test breaks something."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from threading import Event
from typing import NamedTuple

import httpx

from tests.support.serving import ORDERS, Served

CLIENTS = 8
WITHIN_S = 120


class Posted(NamedTuple):
    """What clients have posted so far, and what they were answered."""

    names: list[str]
    answers: list[httpx.Response]

    def with_status(self, status: int) -> list[httpx.Response]:
        return [each for each in self.answers if each.status_code == status]


@contextmanager
def posting(served: Served, at_least: int) -> Iterator[Posted]:
    """Post names until the end of the block, each under a key of its own until it is stored.

    However long the test takes to break something, there are posts which meet it.
    """
    posted, numbers, over = Posted([], []), count(), Event()

    def post(name: str) -> None:
        given = {"json": {"body": name, "delay": "1h"}, "headers": {"Idempotency-Key": name}}
        with served.client() as client:
            status = 0
            while status != 201:
                answer = client.post(ORDERS, **given)  # type: ignore[arg-type]
                posted.answers.append(answer)
                status = answer.status_code
                assert status in (201, 503), answer.text

    def post_many() -> None:
        while not over.is_set() or len(posted.names) < at_least:
            posted.names.append(f"n-{next(numbers)}")
            post(posted.names[-1])

    with ThreadPoolExecutor(CLIENTS) as pool:
        futures = [pool.submit(post_many) for _ in range(CLIENTS)]
        try:
            yield posted
        finally:
            over.set()
        for future in futures:
            future.result(WITHIN_S)
