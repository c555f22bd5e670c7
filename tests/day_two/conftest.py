"""A site on an embedded store of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from duebridge.store.embedded import stop_embedded
from tests.day_two.site import Site

CONFIG = """\
version: 1
store: {{url: "{url}"}}
brokers: {{here: {{type: memory}}}}
worker: {{publish_deadline: 1300ms}}
defaults: {{lease: 3s, retry: {{initial: 1h, max: 1h, jitter: none}}}}
routes:
  orders: {{target: {{broker: here, topic: orders}}, shards: 4, remember: 1h}}
  others:
    target: {{broker: here, topic: others}}
    dead_letter: {{broker: here, topic: others-dlt}}
"""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    store = tmp_path / "store"
    yield Site(tmp_path, CONFIG.format(url=f"embedded:{store}"))
    stop_embedded(store)
