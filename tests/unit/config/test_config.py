"""What a configuration says: the file, its YAML, each refusal, and what a route inherits."""

from pathlib import Path

import pytest

from duebridge.config.durability import DurabilityNeeds, replication_of
from duebridge.config.file_locations import address_of
from duebridge.config.load import MAX_BYTES, load_config
from duebridge.config.models import ColdTier, RetryPolicy
from duebridge.durations import parse_duration_ms
from duebridge.errors import ConfigError
from tests.unit.config_text import NAME, WHOLE, loaded, refusal, refusals


@pytest.mark.parametrize(("text", "expected"), refusals())
def test_load_wrong_line_is_refused_with_place_and_expectation(
    text: str, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DB_ZERO", "0")
    monkeypatch.setenv("DB_CANARY", "Canary7f3c; got 'Canary7f3c")
    assert refusal(text) == expected


# The file


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"version: 1\n# gr\xfcn", ":2:5 expected UTF-8; got byte 0xfc"),
        (b"\xef\xbb\xbfversion: 1\nx: \xed\n", ":2:4 expected UTF-8; got byte 0xed"),
        ((WHOLE + "#" * MAX_BYTES).encode(), ": expected at most 1 MiB"),
    ],
    ids=["latin-1", "after a byte order mark", "too large"],
)
def test_load_unreadable_file_says_why(tmp_path: Path, data: bytes, expected: str) -> None:
    path = tmp_path / "duebridge.yaml"
    path.write_bytes(data)
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    assert str(caught.value) == f"{path}{expected}"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("none", "No such file or directory; commands take one by --config or DUEBRIDGE_CONFIG"),
        ("", "Is a directory"),
    ],
)
def test_load_what_is_no_file_says_so(tmp_path: Path, name: str, reason: str) -> None:
    path = tmp_path / name
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    assert str(caught.value) == f"{path}: cannot be read: {reason}"


def test_load_byte_order_mark_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "duebridge.yaml"
    path.write_text(WHOLE, "utf-8-sig")
    assert list(load_config(path).routes) == ["r"]


EMPTY = "1:1 empty: expected at least version, brokers and routes"
UNTAKEN = "not taken, write the value itself"
SEQUENCE = "YAML: expected ',' or ']', but got ':' (while parsing a flow sequence, line 1)"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", [EMPTY]),
        ("# only this\n", [EMPTY]),
        ("---\n", [EMPTY]),
        ("- 1\n", ["1:1 expected a mapping; got a list"]),
        ("abc\n", ["1:1 expected a mapping; got text"]),
        ("store: {}\n", [f"1:1 {key}: missing key" for key in ("version", "brokers", "routes")]),
        ("a: [1\nb: 2\n", [f"2:2 {SEQUENCE}"]),
        ("a:\n\tb: 1\n", ["2:1 tabs: expected spaces"]),
        ("a: b\n \tc: d\n", ["2:2 tabs: expected spaces"]),
        ("a:\tb\n", ["1:3 tabs: expected spaces"]),
        ("a: &x 1\n", [f"1:4 anchor: {UNTAKEN}"]),
        ("b: *x\nc: !!str 1\n", [f"1:4 alias: {UNTAKEN}", f"2:4 tag: {UNTAKEN}"]),
        ("[" * 5000, ["1:21 expected at most 20 levels; got more"]),
        ("a:\n  '\x07'", ["2:4 expected text; got character 0x0007"]),
        ('a: "\\UFFFFFFFF"', ["1:1 YAML: an escape stands for no character"]),
    ],
)
def test_load_other_text_is_refused(text: str, expected: list[str]) -> None:
    assert refusal(text) == [f"f.yaml:{line}" for line in expected]


# Names and values that are too long for a table


@pytest.mark.parametrize(
    ("target", "refused"),
    [
        (f"{{broker: billing, exchange: {'n' * 256}}}", "exchange: expected at most 255 chara"),
        (f"{{broker: billing, routing_key: {'n' * 256}}}", "routing_key: expected at most 255 ch"),
        (f"{{broker: billing, exchange: {'ä' * 128}}}", "exchange: expected at most 255 bytes"),
        (f"{{broker: billing, routing_key: {'ä' * 128}}}", "routing_key: expected at most 255 by"),
        (f"{{broker: orders, topic: {'t' * 250}}}", "topic: expected at most 249 characters; got"),
    ],
)
def test_load_too_long_name_of_a_target_is_refused_and_cut(target: str, refused: str) -> None:
    [line] = refusal(WHOLE.replace("{broker: orders, topic: t}", target))
    column = 14 + target.rindex(" ")
    assert line.startswith(f"f.yaml:7:{column} routes.r.target.{refused}")
    assert len(line) < 180


def test_load_too_long_name_of_a_route_points_at_it() -> None:
    [line] = refusal(WHOLE.replace("  r:", f"  {'r' * 129}:"))
    assert line.startswith("f.yaml:6:3 routes.rrr")
    assert f": expected {NAME}; got 'rrr" in line


def test_load_duration_of_thousands_of_digits_is_refused() -> None:
    expected = f"expected at most 64 characters; got '{'9' * 75}...'"
    assert refusal(f"{WHOLE}worker: {{drain: {'9' * 5000}s}}\n") == [
        f"f.yaml:8:17 worker.drain: {expected}"
    ]


# What is taken


def test_load_words_that_only_look_like_booleans_stay_text() -> None:
    config = loaded(WHOLE.replace("topic: t", "topic: no").replace("  r:", "  on:"))
    assert config.routes["on"].target.topic == "no"


def test_load_settings_of_brokers_are_kept() -> None:
    options = "{heartbeat: 5, socket_timeout: 2.5, ssl_options: {cafile: /ca.pem}}"
    text = WHOLE.replace("type: rabbitmq,", f"type: rabbitmq, options: {options},")
    brokers = loaded(text.replace("kafka,", "kafka, client: librdkafka,")).model_dump()["brokers"]
    given = {"heartbeat": 5, "socket_timeout": 2.5, "ssl_options": {"cafile": "/ca.pem"}}
    assert (brokers["orders"]["client"], brokers["billing"]["options"]) == ("librdkafka", given)


def test_load_allow_targets_with_glob_is_taken() -> None:
    config = loaded(WHOLE + "    allow_targets: [{broker: orders, topic: 'order-*'}]\n")
    assert config.routes["r"].allow_targets[0].topic == "order-*"


@pytest.mark.parametrize(
    ("deadline", "drain", "request_timeout"), [("100ms", "0ms", "100ms"), ("1h", "24h", "24h")]
)
def test_load_duration_at_a_bound_is_taken(deadline: str, drain: str, request_timeout: str) -> None:
    worker = f"worker: {{publish_deadline: {deadline}, drain: {drain}}}\ndefaults: {{lease: 2h}}\n"
    config = loaded(WHOLE + worker + f"serve: {{request_timeout: {request_timeout}}}\n")
    limits = config.worker.publish_deadline, config.worker.drain, config.serve.request_timeout
    assert limits == tuple(map(parse_duration_ms, (deadline, drain, request_timeout)))


def test_load_least_lease_is_taken() -> None:
    assert loaded(WHOLE + "    lease: 23.5s\n").routes["r"].lease == 23_500


def test_load_cold_tier_is_kept_in_ms() -> None:
    tier = loaded(WHOLE + "    cold_tier: {path: 's3://bucket/cold', horizon: 7d}\n")
    assert tier.routes["r"].cold_tier == ColdTier(path="s3://bucket/cold", horizon="7d")
    assert loaded(WHOLE).routes["r"].cold_tier is None


def test_load_options_of_a_cold_tier_keep_their_references(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DB_UNSET", raising=False)
    options = "{region: '${DB_UNSET}', access_key_id: a, secret_access_key: '${DB_UNSET}'}"
    tier = (
        loaded(
            WHOLE
            + f"    cold_tier: {{path: 's3://bucket/cold', horizon: 7d, options: {options}}}\n"
        )
        .routes["r"]
        .cold_tier
    )
    assert tier is not None
    assert set(tier.options.values()) == {"a", "${DB_UNSET}"}
    assert "options" not in repr(tier)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/cold//a/", ("file", "", "/cold/a")),
        ("file:///cold", ("file", "", "/cold")),
        ("file:/cold", ("file", "", "/cold")),
        ("s3a://bucket/cold/", ("s3", "bucket", "/cold")),
        ("S3://bucket", ("s3", "bucket", "/")),
        (
            "abfs://c-c@account.dfs.core.windows.net/a b",
            ("abfs", "c-c@account.dfs.core.windows.net", "/a b"),
        ),
        ("hdfs://nameservice/cold", ("hdfs", "nameservice", "/cold")),
    ],
)
def test_address_of_a_place_has_one_form(path: str, expected: tuple[str, str, str]) -> None:
    assert address_of(path) == expected


def test_load_empty_blocks_are_defaults() -> None:
    assert loaded(WHOLE + "store:\nworker:\ndefaults:\n") == loaded(WHOLE)


# What a route inherits


@pytest.mark.parametrize(
    ("own", "defaults", "expected"),
    [
        ("initial: 3s", "max_attempts: 7, initial: 2s, max: 1m, jitter: none",
         {"max_attempts": 7, "initial": "3s", "max": "1m", "jitter": "none"}),
        ("backoff: fixed, jitter: none", "", {"backoff": "fixed", "jitter": "none"}),
        ("backoff: fixed", "initial: 2s, max: 1m, jitter: full",
         {"backoff": "fixed", "initial": "2s"}),
    ],
)  # fmt: skip
def test_load_retry_is_merged_field_by_field_where_it_applies(
    own: str, defaults: str, expected: dict[str, object]
) -> None:
    text = f"{WHOLE}    retry: {{{own}}}\ndefaults: {{retry: {{{defaults}}}}}\n"
    retry, wanted = loaded(text).routes["r"].retry, RetryPolicy.model_validate(expected)
    assert (retry, retry.model_fields_set) == (wanted, wanted.model_fields_set)


@pytest.mark.parametrize(
    "own",
    ["retry:\n    on_target_error:", "on_target_error: {}", "on_target_error: {then: dead_letter}"],
)
def test_load_block_of_a_route_inherits_the_defaults(own: str) -> None:
    defaults = "defaults: {retry: {initial: 2s}, on_target_error: {hold: 3m, then: dead_letter}}\n"
    route = loaded(f"{WHOLE}    {own}\n{defaults}").routes["r"]
    assert (route.retry.initial, route.on_target_error.hold) == (2_000, 180_000)
    assert route.on_target_error.then == "dead_letter"


@pytest.mark.parametrize(
    ("store", "route", "expected", "needs"),
    [
        ("", "", "async", DurabilityNeeds()),
        ("{durability: fsync}", "", "fsync", DurabilityNeeds(fsync=True)),
        ("{durability: async}", "fsync", "fsync", DurabilityNeeds(fsync=True)),
        ("{durability: fsync}", "{replicated: {replicas: 3}}", 3, DurabilityNeeds(True, 3, 3)),
        ("{durability: {replicated: {replicas: 2}}}", "", 2, DurabilityNeeds(False, 2, 2)),
    ],
)
def test_load_route_has_the_durability_of_the_store_or_a_stricter_one(
    store: str, route: str, expected: object, needs: DurabilityNeeds
) -> None:
    own = f"    durability: {route}\n" if route else ""
    config = loaded(f"{WHOLE}{own}store: {store}\n")
    found = config.routes["r"].durability
    waited = replication_of(found)
    assert (waited.replicas if waited else found, config.needs) == (expected, needs)
