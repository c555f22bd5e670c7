"""A steady load from the test's own process."""

import threading
from pathlib import Path

from duebridge.envelope import Envelope
from duebridge.producer import Producer

EVERY_S = 0.02
AT_ONCE = 5
DELAY = "100ms"


class Load(threading.Thread):
    """Schedules envelopes of one route, `AT_ONCE` every `EVERY_S`, until it is stopped."""

    def __init__(self, config: Path, route: str) -> None:
        super().__init__(name="load")
        self.accepted: list[str] = []
        self._config = config
        self._route = route
        self._stop_asked = threading.Event()

    def run(self) -> None:
        with Producer.from_config(self._config) as producer:
            while not self._stop_asked.wait(EVERY_S):
                begin = len(self.accepted)
                ids = [f"load-{number}" for number in range(begin, begin + AT_ONCE)]
                envelopes = [Envelope.new(b"body", id=each, delay=DELAY) for each in ids]
                producer.schedule_many(self._route, envelopes)
                self.accepted += ids

    def stop(self) -> None:
        self._stop_asked.set()
        self.join()
