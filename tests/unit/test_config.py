"""What the settings say together: brokers, targets, leases, and what a route inherits."""

import pytest

from duebridge.config.models import ColdTier, RetryPolicy
from tests.unit.config_text import BROKERS, WHOLE, loaded, refusal

NAME = "1 to 128 letters, digits, dots, dashes and underscores, a letter or digit first"


# Store and names


@pytest.mark.parametrize("value", ["fsync", "replicated"])
def test_load_durability_to_come_is_refused(value: str) -> None:
    assert refusal(f"{WHOLE}store: {{durability: {value}}}\n") == [
        f"f.yaml:8:21 store.durability: {value}: not implemented yet"
    ]


def test_load_other_durability_names_the_one() -> None:
    assert refusal(WHOLE + "store: {durability: sync}\n") == [
        "f.yaml:8:21 store.durability: expected async; got 'sync'"
    ]


def test_load_max_body_beyond_what_a_record_holds_is_refused() -> None:
    text = WHOLE + "defaults: {max_body: 65MiB}\n"
    assert refusal(text) == [
        "f.yaml:8:22 defaults.max_body: expected at most 67108864; got '65MiB'"
    ]


def test_load_bad_names_point_at_their_keys() -> None:
    text = WHOLE.replace("  r:", "  r r:").replace("  billing:", "  -b:")
    assert refusal(text + "store: {namespace: 'a{b}'}\n") == [
        f"f.yaml:4:3 brokers.-b: expected {NAME}; got '-b'",
        f"f.yaml:6:3 routes.'r r': expected {NAME}; got 'r r'",
        f"f.yaml:8:20 store.namespace: expected {NAME}; got 'a{{b}}'",
    ]


def test_load_unknown_broker_type_names_the_known_and_no_second_fault() -> None:
    letters = "    dead_letter: {broker: orders, topic: dlt}\n"
    assert refusal(WHOLE.replace("type: kafka", "type: kafak") + letters) == [
        "f.yaml:3:18 brokers.orders.type: expected one of kafka, memory, rabbitmq; got 'kafak',"
        " did you mean kafka?"
    ]


def test_load_broker_without_type_names_the_key() -> None:
    assert refusal(WHOLE.replace("type: kafka, ", "")) == [
        "f.yaml:3:3 brokers.orders.type: missing key"
    ]


def test_load_librdkafka_keeps_it() -> None:
    text = WHOLE.replace("type: kafka,", "type: kafka, client: librdkafka,")
    broker = loaded(text).brokers["orders"]
    assert broker.type == "kafka"
    assert broker.client == "librdkafka"


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("[]", "expected at least one item; got none"),
        ("localhost:9092", "expected a list; got text"),
    ],
)
def test_load_unusable_servers_are_refused(written: str, expected: str) -> None:
    text = WHOLE.replace('["localhost:9092"]', written)
    [line] = refusal(text)
    assert line.endswith(f" brokers.orders.bootstrap_servers: {expected}")


def test_load_option_that_is_a_list_is_refused() -> None:
    text = WHOLE.replace("type: kafka,", "type: kafka, options: {linger.ms: [5]},")
    assert refusal(text) == [
        "f.yaml:3:35 brokers.orders.options.linger.ms:"
        " expected text, a number, true or false; got a list"
    ]


def test_load_options_of_rabbitmq_may_be_mappings() -> None:
    options = "{heartbeat: 5, socket_timeout: 2.5, ssl_options: {cafile: /ca.pem}}"
    text = WHOLE.replace("type: rabbitmq,", f"type: rabbitmq, options: {options},")
    assert loaded(text).brokers["billing"].options == {
        "heartbeat": 5,
        "socket_timeout": 2.5,
        "ssl_options": {"cafile": "/ca.pem"},
    }


@pytest.mark.parametrize("written", ["[5]", "{a: {b: 1}}", "~"])
def test_load_deeper_option_of_rabbitmq_is_refused(written: str) -> None:
    text = WHOLE.replace("type: rabbitmq,", f"type: rabbitmq, options: {{ssl_options: {written}}},")
    [line] = refusal(text)
    expected = "expected text, a number, true or false, or a mapping of those; got "
    assert f" brokers.billing.options.ssl_options: {expected}" in line


# Targets


def target(text: str) -> str:
    return WHOLE.replace("{broker: orders, topic: t}", text)


def test_load_unknown_broker_names_the_near_one() -> None:
    expected = "expected a broker of this file (billing, orders); got 'oders', did you mean orders?"
    assert refusal(target("{broker: oders, topic: t}")) == [
        f"f.yaml:7:22 routes.r.target.broker: {expected}"
    ]


def test_load_unknown_broker_of_dead_letter_is_refused() -> None:
    expected = "expected a broker of this file (billing, orders); got 'zzz'"
    assert refusal(WHOLE + "    dead_letter: {broker: zzz, topic: t}\n") == [
        f"f.yaml:8:27 routes.r.dead_letter.broker: {expected}"
    ]


@pytest.mark.parametrize("key", ["exchange", "routing_key"])
def test_load_kafka_target_with_amqp_key_expects_topic(key: str) -> None:
    assert refusal(target(f"{{broker: orders, {key}: x}}")) == [
        "f.yaml:7:5 routes.r.target.topic: missing key",
        f"f.yaml:7:30 routes.r.target.{key}: unknown key, expected one of broker, topic",
    ]


def test_load_rabbitmq_target_with_topic_expects_exchange() -> None:
    assert refusal(target("{broker: billing, topic: t}")) == [
        "f.yaml:7:31 routes.r.target.topic:"
        " unknown key, expected one of broker, exchange, routing_key"
    ]


def test_load_target_without_fields_is_refused() -> None:
    assert refusal(target("{broker: orders}")) == ["f.yaml:7:5 routes.r.target.topic: missing key"]
    assert refusal(target("{broker: billing}")) == [
        "f.yaml:7:5 routes.r.target: expected exchange and routing_key; got neither"
    ]


@pytest.mark.parametrize("topic", ["a b", "order-*", "a/b", ".", ".."])
def test_load_topic_that_kafka_refuses_is_refused(topic: str) -> None:
    expected = "expected letters, digits, dots (not alone), dashes and underscores"
    assert refusal(target(f"{{broker: orders, topic: {topic}}}")) == [
        f"f.yaml:7:37 routes.r.target.topic: {expected}; got {topic!r}"
    ]


@pytest.mark.parametrize("key", ["exchange", "routing_key"])
def test_load_too_long_amqp_names_are_refused(key: str) -> None:
    for name, expected in (("n" * 256, "255 characters"), ("\u00e4" * 128, "255 bytes in UTF-8")):
        [line] = refusal(target(f"{{broker: billing, {key}: {name}}}"))
        place = f"f.yaml:7:{33 + len(key)} routes.r.target.{key}"
        assert line.startswith(f"{place}: expected at most {expected}; got '{name[0]}")


def test_load_too_long_name_of_a_route_points_at_it() -> None:
    [line] = refusal(WHOLE.replace("  r:", f"  {'r' * 129}:"))
    assert line.startswith("f.yaml:6:3 routes.rrr")
    assert f": expected {NAME}; got 'rrr" in line


def test_load_too_long_names_are_refused() -> None:
    [line] = refusal(target(f"{{broker: orders, topic: {'t' * 250}}}"))
    assert line.startswith(
        "f.yaml:7:37 routes.r.target.topic: expected at most 249 characters; got"
    )
    assert len(line) < 180


@pytest.mark.parametrize(
    ("own", "dead"),
    [
        ("{broker: orders, topic: t}", "{topic: t, broker: orders}"),
        ("{broker: billing, exchange: '', routing_key: q}", "{broker: billing, routing_key: q}"),
    ],
)
def test_load_dead_letter_into_target_is_refused(own: str, dead: str) -> None:
    assert refusal(f"{target(own)}    dead_letter: {dead}\n") == [
        "f.yaml:8:5 routes.r.dead_letter: expected another target than the route's own"
    ]


def test_load_allow_targets_with_glob_is_taken() -> None:
    config = loaded(WHOLE + "    allow_targets: [{broker: orders, topic: 'order-*'}]\n")
    assert config.routes["r"].allow_targets[0].topic == "order-*"


def test_load_allow_targets_of_other_broker_is_refused() -> None:
    allowed = "    allow_targets:\n      - {broker: billing, exchange: x}\n"
    assert refusal(WHOLE + allowed) == [
        "f.yaml:9:18 routes.r.allow_targets.0.broker:"
        " expected the broker of the route's target; got 'billing'"
    ]


def test_load_allow_targets_of_other_kind_is_refused() -> None:
    assert refusal(WHOLE + "    allow_targets: [{broker: orders, exchange: x}]\n") == [
        "f.yaml:8:21 routes.r.allow_targets.0.topic: missing key",
        "f.yaml:8:38 routes.r.allow_targets.0.exchange: unknown key, expected one of broker, topic",
    ]


def test_load_short_lease_names_the_least() -> None:
    assert refusal(WHOLE + "    lease: 23s\n") == [
        "f.yaml:8:12 routes.r.lease:"
        " expected at least 23500ms (1.5 x publish_deadline + 1s); got 23s"
    ]


def test_load_least_lease_is_taken() -> None:
    assert loaded(WHOLE + "    lease: 23.5s\n").routes["r"].lease == 23_500


def test_load_short_lease_of_defaults_is_told_once_where_it_is_written() -> None:
    text = BROKERS + "defaults: {lease: 2s}\nroutes:\n"
    text += "".join(f"  r{n}: {{target: {{broker: orders, topic: t}}}}\n" for n in range(3))
    assert refusal(text) == [
        "f.yaml:5:19 defaults.lease:"
        " expected at least 23500ms (1.5 x publish_deadline + 1s); got 2s"
    ]


def test_load_long_deadline_with_lease_unsaid_points_at_deadline() -> None:
    assert refusal(WHOLE + "worker: {publish_deadline: 20s}\n") == [
        "f.yaml:8:28 worker.publish_deadline:"
        " expected at most 19333ms, or a lease longer than the default; got 20s"
    ]


# Defaults and routes


def test_load_wrong_default_is_told_once() -> None:
    text = WHOLE + "  s:\n    target: {broker: orders, topic: t}\n"
    assert refusal(text + "defaults: {retry: {max_attempts: 0}, shards: 2}\n") == [
        "f.yaml:10:34 defaults.retry.max_attempts: expected at least 1; got 0",
        "f.yaml:10:38 defaults.shards: unknown key, expected one of lease, max_body, max_delay,"
        " on_target_error, poison, remember, retry",
    ]


def test_load_retry_is_merged_field_by_field() -> None:
    defaults = "defaults: {retry: {max_attempts: 7, initial: 2s, max: 1m, jitter: none}}\n"
    config = loaded(f"{WHOLE}    retry: {{initial: 3s}}\n{defaults}")
    assert config.routes["r"].retry == RetryPolicy(
        max_attempts=7, initial="3s", max="1m", jitter="none"
    )


def test_load_target_error_is_merged_over_defaults() -> None:
    defaults = "defaults: {on_target_error: {hold: 3m}}\n"
    config = loaded(f"{WHOLE}    on_target_error: {{then: dead_letter}}\n{defaults}")
    assert config.routes["r"].on_target_error.hold == 180_000


def test_load_fixed_retry_drops_what_it_inherits_of_exponential() -> None:
    defaults = "defaults: {retry: {initial: 2s, max: 1m, jitter: full}}\n"
    retry = loaded(f"{WHOLE}    retry: {{backoff: fixed}}\n{defaults}").routes["r"].retry
    assert retry.model_fields_set == {"backoff", "initial"}


def test_load_fixed_retry_with_max_and_jitter_of_its_own_is_refused() -> None:
    rest = "applies only to backoff: exponential; this one is fixed"
    assert refusal(WHOLE + "    retry: {backoff: fixed, max: 1m, jitter: full}\n") == [
        f"f.yaml:8:34 routes.r.retry.max: {rest}",
        f"f.yaml:8:46 routes.r.retry.jitter: {rest}",
    ]


def test_load_jitter_on_inherited_fixed_retry_is_refused() -> None:
    defaults = "defaults: {retry: {backoff: fixed}}\n"
    assert refusal(f"{WHOLE}    retry: {{jitter: full}}\n{defaults}") == [
        "f.yaml:8:21 routes.r.retry.jitter: applies only to backoff: exponential; this one is fixed"
    ]


def test_load_fixed_retry_with_jitter_none_is_taken() -> None:
    config = loaded(WHOLE + "    retry: {backoff: fixed, jitter: none}\n")
    assert config.routes["r"].retry.jitter == "none"


def test_load_empty_block_of_a_route_inherits_the_defaults() -> None:
    defaults = "defaults: {retry: {initial: 2s}, on_target_error: {hold: 3m}}\n"
    route = loaded(f"{WHOLE}    retry:\n    on_target_error:\n{defaults}").routes["r"]
    assert (route.retry.initial, route.on_target_error.hold) == (2_000, 180_000)


def test_load_cold_tier_is_kept_in_ms() -> None:
    tier = loaded(WHOLE + "    cold_tier: {path: 's3://bucket/cold', horizon: 7d}\n")
    assert tier.routes["r"].cold_tier == ColdTier(path="s3://bucket/cold", horizon="7d")
    assert loaded(WHOLE).routes["r"].cold_tier is None


def test_load_cold_tier_that_could_not_work_is_refused() -> None:
    assert refusal(WHOLE + "    cold_tier: {path: cold, horizon: 59m}\n") == [
        "f.yaml:8:23 routes.r.cold_tier.path: expected an absolute path, or a URI; got 'cold'",
        "f.yaml:8:38 routes.r.cold_tier.horizon: expected 1h or more; got 59m",
    ]


def test_load_cold_tier_that_nothing_would_reach_is_refused() -> None:
    assert refusal(WHOLE + "    max_delay: 7d\n    cold_tier: {path: /cold, horizon: 7d}\n") == [
        "f.yaml:9:39 routes.r.cold_tier.horizon: expected less than max_delay (7d); got 7d"
    ]


def test_load_absent_route_that_is_there_is_refused() -> None:
    assert refusal(WHOLE + "allow_absent: [old, r]\n") == [
        "f.yaml:8:21 allow_absent.1: expected a route that is not in this file; got 'r'"
    ]


def test_load_absent_route_that_is_no_name_is_refused() -> None:
    assert refusal(WHOLE + "allow_absent: ['a b']\n") == [
        f"f.yaml:8:16 allow_absent.0: expected {NAME}; got 'a b'"
    ]


def test_load_empty_blocks_are_defaults() -> None:
    config = loaded(WHOLE + "store:\nworker:\ndefaults:\n")
    assert config == loaded(WHOLE)
