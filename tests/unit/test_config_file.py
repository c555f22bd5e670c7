"""The messages of the configuration file, each in full: they are what a user sees of duebridge."""

from pathlib import Path

import pytest

from duebridge.config.load import MAX_BYTES, load_config
from duebridge.errors import ConfigError
from tests.unit.config_text import BROKERS, WHOLE, loaded, refusal

DURATION = 'expected a duration such as "500ms", "2.5s", "15m", "1h30m", "3d", "2w"'


# The file


def test_load_missing_file_says_so(tmp_path: Path) -> None:
    path = tmp_path / "none.yaml"
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    hint = "name the file with --config or DUEBRIDGE_CONFIG"
    assert str(caught.value) == f"{path}: cannot be read: No such file or directory; {hint}"


def test_load_directory_says_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(tmp_path)
    assert str(caught.value) == f"{tmp_path}: cannot be read: Is a directory"


def test_load_other_encoding_names_line_and_column(tmp_path: Path) -> None:
    path = tmp_path / "duebridge.yaml"
    path.write_bytes("version: 1\n# gr\u00fcn".encode("latin-1"))
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    assert str(caught.value) == f"{path}:2:5 expected UTF-8; got byte 0xfc"


def test_load_byte_order_mark_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "duebridge.yaml"
    path.write_text(WHOLE, "utf-8-sig")
    assert list(load_config(path).routes) == ["r"]


def test_load_file_beyond_limit_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "duebridge.yaml"
    path.write_text(WHOLE + "#" * MAX_BYTES)
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    assert str(caught.value) == f"{path}: expected at most 1 MiB"


@pytest.mark.parametrize("text", ["", "\n", "# only this\n", "---\n", "null\n"])
def test_load_empty_file_says_what_is_expected(text: str) -> None:
    assert refusal(text) == ["f.yaml:1:1 empty: expected at least version, brokers and routes"]


def test_load_several_documents_names_the_second() -> None:
    assert refusal(WHOLE + "---\n" + WHOLE) == ["f.yaml:8:1 expected one document; got another"]


@pytest.mark.parametrize(("text", "kind"), [("- 1\n", "a list"), ("abc\n", "text")])
def test_load_no_mapping_names_its_kind(text: str, kind: str) -> None:
    assert refusal(text) == [f"f.yaml:1:1 expected a mapping; got {kind}"]


# YAML


def test_load_syntax_error_names_its_line() -> None:
    expected = "YAML: expected ',' or ']', but got ':' (while parsing a flow sequence, line 1)"
    assert refusal("a: [1\nb: 2\n") == [f"f.yaml:2:2 {expected}"]


@pytest.mark.parametrize(
    ("text", "at"), [("a:\n\tb: 1\n", "2:1"), ("a: b\n \tc: d\n", "2:2"), ("a:\tb\n", "1:3")]
)
def test_load_tab_expects_spaces(text: str, at: str) -> None:
    assert refusal(text) == [f"f.yaml:{at} tabs: expected spaces"]


def test_load_alias_anchor_and_tag_are_each_refused() -> None:
    rest = "not taken, write the value itself"
    assert refusal("a: &x 1\nb: *x\nc: !!str 1\n") == [
        f"f.yaml:1:4 anchor: {rest}",
        f"f.yaml:2:4 alias: {rest}",
        f"f.yaml:3:4 tag: {rest}",
    ]


def test_load_duplicate_key_names_both_lines() -> None:
    expected = "f.yaml:9:5 routes.r.target: key given twice, first in line 7"
    assert refusal(WHOLE + "    shards: 2\n    target: {broker: x}\n") == [expected]


def test_load_list_as_key_is_refused() -> None:
    assert refusal(WHOLE + "    ? [a]\n    : 1\n") == [
        "f.yaml:8:7 routes.r: expected a key; got a list"
    ]


def test_load_deep_nesting_is_refused() -> None:
    assert refusal("[" * 5000) == ["f.yaml:1:21 expected at most 20 levels; got more"]


def test_load_control_character_is_refused() -> None:
    assert refusal("a:\n  '\x07'") == ["f.yaml:2:4 expected text; got character 0x0007"]


def test_load_escape_beyond_unicode_is_refused() -> None:
    assert refusal('a: "\\UFFFFFFFF"') == ["f.yaml:1:1 YAML: an escape stands for no character"]


def test_load_half_a_character_is_refused() -> None:
    text = WHOLE.replace("topic: t", 'topic: "\\ud800"')
    assert refusal(text) == ["f.yaml:7:37 routes.r.target.topic: expected Unicode text"]


def test_load_words_that_only_look_like_booleans_stay_text() -> None:
    config = loaded(WHOLE.replace("topic: t", "topic: no").replace("  r:", "  on:"))
    assert config.routes["on"].target.topic == "no"


# Keys and values


def test_load_unknown_key_names_the_near_one() -> None:
    text = WHOLE.replace("topic: t", "topc: t")
    assert refusal(text) == [
        "f.yaml:7:5 routes.r.target.topic: missing key",
        "f.yaml:7:30 routes.r.target.topc: unknown key, did you mean topic?",
    ]


def test_load_unknown_key_near_none_names_all() -> None:
    assert refusal(WHOLE + "zzz: 1\n") == [
        "f.yaml:8:1 zzz: unknown key, expected one of allow_absent, brokers, defaults, routes,"
        " store, version, worker"
    ]


@pytest.mark.parametrize(
    ("block", "path", "meant"),
    [
        ("store: {ulr: x}", "store.ulr", "url"),
        ("worker: {bach: 1}", "worker.bach", "batch"),
        ("defaults: {retry: {intial: 1s}}", "defaults.retry.intial", "initial"),
        ("defaults: {on_target_error: {holt: 1s}}", "defaults.on_target_error.holt", "hold"),
    ],
)
def test_load_unknown_key_of_block_names_the_near_one(block: str, path: str, meant: str) -> None:
    column = block.rindex("{") + 2
    expected = f"f.yaml:8:{column} {path}: unknown key, did you mean {meant}?"
    assert refusal(f"{WHOLE}{block}\n") == [expected]


def test_load_unknown_key_of_broker_names_the_near_one() -> None:
    text = WHOLE.replace("url:", "ulr:")
    assert refusal(text) == [
        "f.yaml:4:3 brokers.billing.url: missing key",
        "f.yaml:4:29 brokers.billing.ulr: unknown key, did you mean url?",
    ]


def test_load_name_inside_route_is_unknown() -> None:
    assert refusal(WHOLE + "    name: s\n") == [
        "f.yaml:8:5 routes.r.name: unknown key, a route's name is its own key"
    ]


def test_load_missing_keys_are_all_named() -> None:
    assert refusal("store: {}\n") == [
        "f.yaml:1:1 version: missing key",
        "f.yaml:1:1 brokers: missing key",
        "f.yaml:1:1 routes: missing key",
    ]


def test_load_missing_key_points_at_its_block() -> None:
    assert refusal(BROKERS + "routes:\n  r:\n  s: {target: {topic: t}}\n") == [
        "f.yaml:6:3 routes.r.target: missing key",
        "f.yaml:7:7 routes.s.target.broker: missing key",
    ]


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        ("worker: 5", "8:9 worker: expected a mapping; got a number"),
        ("worker: {batch: many}", "8:17 worker.batch: expected a whole number; got 'many'"),
        ("worker: {batch: true}", "8:17 worker.batch: expected a whole number; got true"),
        ("worker: {batch: 1.0}", "8:17 worker.batch: expected a whole number; got 1.0"),
        ("worker: {batch: 1001}", "8:17 worker.batch: expected at most 1000; got 1001"),
        ("worker: {batch: [1]}", "8:10 worker.batch: expected a whole number; got a list"),
        ("worker: {batch: }", "8:16 worker.batch: expected a whole number; got nothing"),
        ("worker: {in_flight: 0}", "8:21 worker.in_flight: expected at least 1; got 0"),
        ("store: {url: 5}", "8:14 store.url: expected text; got a number"),
        ("store: {url: ''}", "8:14 store.url: expected at least 1 character; got ''"),
        ("store: {allow_unfit: version}", "8:22 store.allow_unfit: expected a list; got text"),
        ("store: {allow_unfit: [x]}",
         "8:23 store.allow_unfit.0: expected version, eviction or persistence; got 'x'"),
        ("defaults: {retry: {backoff: linear}}",
         "8:29 defaults.retry.backoff: expected exponential or fixed; got 'linear'"),
    ],
)  # fmt: skip
def test_load_wrong_value_says_expected_and_got(block: str, expected: str) -> None:
    assert refusal(f"{WHOLE}{block}\n") == [f"f.yaml:{expected}"]


def test_load_other_version_is_refused() -> None:
    assert refusal(WHOLE.replace("version: 1", "version: 2")) == [
        "f.yaml:1:10 version: expected 1; got 2"
    ]


def test_load_bare_number_as_duration_asks_for_unit() -> None:
    assert refusal(WHOLE + "worker: {drain: 20}\n") == [
        f"f.yaml:8:17 worker.drain: {DURATION} (a bare number: seconds or milliseconds?); got 20"
    ]


@pytest.mark.parametrize(
    ("written", "got"), [("soon", "'soon'"), ("-1s", "'-1s'"), ("'20'", "'20'"), ("~", "nothing")]
)
def test_load_unreadable_duration_says_what_came(written: str, got: str) -> None:
    assert refusal(f"{WHOLE}worker: {{drain: {written}}}\n") == [
        f"f.yaml:8:17 worker.drain: {DURATION}; got {got}"
    ]


def test_load_duration_of_thousands_of_digits_is_refused() -> None:
    expected = f"expected at most 64 characters; got '{'9' * 75}...'"
    assert refusal(f"{WHOLE}worker: {{drain: {'9' * 5000}s}}\n") == [
        f"f.yaml:8:17 worker.drain: {expected}"
    ]


def test_load_bare_number_as_size_is_refused() -> None:
    expected = 'expected a size such as "512B", "256KiB", "64MiB"; got 1024'
    assert refusal(WHOLE + "defaults: {max_body: 1024}\n") == [
        f"f.yaml:8:22 defaults.max_body: {expected}"
    ]


def test_load_several_errors_come_sorted_by_place() -> None:
    text = WHOLE.replace("version: 1", "version: 3") + "    shards: 0\nworker: {drain: 1}\n"
    places = [line.split()[0] for line in refusal(text)]
    assert places == ["f.yaml:1:10", "f.yaml:8:13", "f.yaml:9:17"]


def test_load_of_a_file_with_a_mark_before_other_bytes_names_the_place(tmp_path: Path) -> None:
    path = tmp_path / "duebridge.yaml"
    path.write_bytes(b"\xef\xbb\xbfversion: 1\nx: \xed\n")
    with pytest.raises(ConfigError, match=r"duebridge\.yaml:2:4"):
        load_config(path)
