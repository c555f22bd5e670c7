"""Any configuration loads or is refused by file and line, soon, and shows no secret."""

import re
import time
import traceback
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duebridge.config.broker_access import open_publishers
from duebridge.config.load import load_config, read_config_text, resolved_store_url
from duebridge.config.models import Config
from duebridge.config.render import rendered_config
from duebridge.errors import ConfigError
from duebridge.store.server.connection import open_connection
from tests.support.model.fuzzing import fuzz
from tests.unit.config_text import PIECES, mutated, with_values

SECRET, PLAIN, LITERAL = "Canary-s3cr3t", "Canary pl4in!", "Canary-l1teral"
WHOLE = f"""\
version: 1
store: {{url: "redis://:{LITERAL}@h:1/${{FUZZ_SECRET:-0}}", namespace: duebridge}}
brokers:
  orders:
    type: kafka
    bootstrap_servers: ['localhost:9092', 'SASL://u:{LITERAL}@h:9092', "${{FUZZ_SECRET}}"]
    client: kafka-python
    options: {{compression.type: zstd, sasl.password: "${{file:SECRET_FILE}}", retries: 3}}
  billing:
    type: rabbitmq
    url: "amqps://u:{LITERAL}@h/${{FUZZ_SECRET}}"
    options:
      heartbeat: 30
      ssl_options: {{cafile: /ca.pem, password: {LITERAL}, keyfile: "${{FUZZ_SECRET}}"}}
  here: {{type: memory}}
worker: {{in_flight: 5000, in_flight_bytes: 64MiB, publish_deadline: 15s}}
defaults: {{lease: 30s, max_body: 256KiB, remember: 0ms, poison: 5}}
routes:
  r:
    target: {{broker: orders, topic: order-timeouts}}
    dead_letter: {{broker: billing, exchange: "", routing_key: dunning.dead}}
    allow_targets: [{{broker: orders, topic: 'order-*'}}]
    retry: {{max_attempts: 8, backoff: exponential, initial: 1s, max: 5m, jitter: none}}
    on_target_error: {{hold: 10m, then: dead_letter}}
    shards: 4
  s: {{target: {{broker: here, topic: t}}}}
allow_absent: [old-route]
"""
SCALARS = [
    *("$", "$$", "${", "${}", "${NOT_SET}", "${file:/nowhere}", "${file:/}", "~", "null", "true"),
    *("${FUZZ_PLAIN}", "'x${FUZZ_PLAIN}y'", ".inf", ".nan", "0x1F", "1e999", "-0", "007", "1_000"),
    *("12:30", "2026-01-01", "1.5", "-1", "1s", "1y", "0ms", "9" * 19, "9" * 5000, "x" * 70_000),
    *("''", '"\\ud800"', '"\\0"', "!!python/name:os.system", "!!binary AAAA", "<<", "ünïcode"),
]
WEDGES = [
    *("\ufeff", "\0", "\r", "\n---\n", "%YAML 9.9\n", "a: &a [*a]\n", "\x1b[31m", "[" * 3000),
    *("{a: " * 3000, "- " * 3000, "x: 1\n" * 300),
    "a: &a [x]\n" + "".join(f"b{n}: &b{n} [{'*a, ' * 9}]\n" for n in range(8)),
]
WITHIN_S = 5.0  # of the processor: however busy the machine is
NO_SERVER = ("redis://", "rediss://", "unix://")  # nobody connects before the first call

values = st.lists(st.tuples(st.floats(0, 1), st.sampled_from(SCALARS)), max_size=3)
cuts = st.tuples(
    st.floats(0, 1), st.sampled_from([0, 1, 5, 10**6]), st.sampled_from(PIECES + WEDGES)
)
encodings = st.sampled_from([*["utf-8"] * 9, "utf-8-sig", "utf-16", "utf-32-be"])


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    home = tmp_path_factory.mktemp("configurations")
    (home / "secret").write_text(f"{SECRET}\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FUZZ_SECRET", SECRET)
        patch.setenv("FUZZ_PLAIN", PLAIN)
        yield home


def test_configuration_without_a_change_loads(home: Path) -> None:
    path = home / "whole.yaml"
    path.write_text(WHOLE.replace("SECRET_FILE", str(home / "secret")))
    assert set(load_config(path).routes) == {"r", "s"}


@fuzz(1.0)
@given(values, st.one_of(st.just([]), st.lists(cuts, max_size=3)), encodings)
def test_configuration_loads_or_is_refused_by_its_place_without_a_secret(
    home: Path, changes: list[tuple[float, str]], damage: list[tuple[float, int, str]], code: str
) -> None:
    text = with_values(WHOLE.replace("SECRET_FILE", str(home / "secret")), changes)
    path = home / "fuzz.yaml"
    path.write_bytes(mutated(text, damage).encode(code, errors="replace"))
    begun_at = time.process_time()
    try:
        config = load_config(path)
    except ConfigError as error:
        check_places(str(error), str(path))
        shown = traceback_of(error)
    else:
        shown = f"{rendered_config(read_config_text(path), str(path))} {said_of_use(config)}"
        assert SECRET not in repr(config)
    assert time.process_time() - begun_at < WITHIN_S
    # What is damaged may put a literal where no secret is expected: as the name of a topic.
    assert [each for each in (SECRET, PLAIN, *([] if damage else [LITERAL])) if each in shown] == []


def check_places(message: str, name: str) -> None:
    """Every line has file, line and column, but for one about the whole file."""
    place = re.compile(re.escape(name) + r"(:\d+:\d+ \S|: expected at most 1 MiB$)")
    assert [line for line in message.split("\n") if not place.match(line)] == []


def said_of_use(config: Config) -> str:
    """What opening everything says, as far as that reaches no network."""
    said = ""
    with ExitStack() as stack:
        try:
            if (url := resolved_store_url(config)).startswith(NO_SERVER):
                stack.callback(open_connection(url).close)
        except ConfigError as error:
            said += traceback_of(error)
        try:
            open_publishers(config, stack)
        except ConfigError as error:
            said += traceback_of(error)
    return said


def traceback_of(error: Exception) -> str:
    return "".join(traceback.format_exception(error))
