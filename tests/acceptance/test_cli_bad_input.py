"""What a person or a program gets wrong in an envelope: one line says it, code 2, nothing lost."""

import json
from collections.abc import Iterator

import pytest

from tests.acceptance.command import Command, embedded_command

LONG = "x" * 256


@pytest.fixture(scope="module")
def duebridge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Command]:
    with embedded_command(tmp_path_factory.mktemp("cli")) as command:
        text = command.file.read_text()
        command.file.write_text(text.replace("max_delay: 30d", "max_delay: 30d, max_body: 1KiB"))
        yield command


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("x --delay 1h --at 2126-01-31T09:00:00Z", "exactly one of the two; got both"),
        ("x", "exactly one of the two; got neither"),
        ("x --delay 5", "delay: expected a duration such as"),
        ("x --delay -5s", "delay: expected a duration such as"),
        ("x --delay=-5s", "delay: expected a duration such as"),
        ("x --delay 31d", "due: expected within max_delay (30d) of now"),
        ("x --at 2126-01-31T09:00:00Z", "due: expected within max_delay (30d) of now"),
        ("x --at 2026-01-31T09:00:00", "--at: expected RFC 3339 with an offset"),
        ("x --delay 2h --expires 1h", "expires: expected an instant after the envelope is due"),
        ("x --delay 1h --expires 5", "expires: expected"),
        ("x" * 1_025 + " --delay 1h", "body: expected at most 1024 bytes; got 1025"),
        (f"x --delay 1h --id {LONG}", "id: expected 1 to 255 bytes of UTF-8; got 256"),
        (f"x --delay 1h --header {LONG}=1", "header name: expected 1 to 255 bytes of UTF-8; got"),
        ("x --delay 1h --header x-route=1", "header 'x-route': expected a name that duebridge"),
        ("x --delay 1h --max-attempts 0", "max_attempts: expected a whole number, 1 to 10000"),
    ],
)
def test_send_of_a_bad_envelope_exits_2_and_stores_nothing(
    duebridge: Command, words: str, expected: str
) -> None:
    refused = duebridge("send", "reminders", *words.split())
    assert (refused.code, refused.out) == (2, "")
    assert expected in refused.err
    assert len(refused.err.splitlines()) == 1


@pytest.mark.parametrize("command", ["send", "cancel", "reschedule", "get", "ls", "dead ls"])
def test_unknown_route_exits_2_and_names_those_there_are(duebridge: Command, command: str) -> None:
    rest = {"send": "x --delay 1h", "reschedule": "x --delay 1h", "ls": "", "dead ls": ""}
    words = f"{command} reminder {rest.get(command, 'x')}"
    refused = duebridge(*words.split())
    assert (refused.code, refused.out) == (2, "")
    assert refused.err.startswith("route: expected one of the configuration")
    assert "(invoices, reminders); got 'reminder'" in refused.err


BAD_FIELDS: list[tuple[dict[str, object], str]] = [
    ({"headers": {"h": 1.5}}, "`$.headers"),
    ({"headers": {"h": [1]}}, "`$.headers"),
    ({"headers": {"h": 2**70}}, "header 'h': expected bytes, str, bool, None or an int of 64 bits"),
    ({"headers": [["h"]]}, "`$.headers"),
    ({"headers": {LONG: "1"}}, "header name: expected 1 to 255 bytes"),
    ({"headers": {"": "1"}}, "header name: expected 1 to 255 bytes"),
    ({"id": LONG}, "id: expected 1 to 255 bytes"),
    ({"id": 5}, "`$.id`"),
    ({"delay": "-5s"}, "delay: expected a duration"),
    ({"delay": None}, "exactly one of the two; got neither"),
    ({"expires": "30m"}, "expires: expected an instant after"),
    ({"body": "x" * 1_025}, "body: expected at most 1024 bytes"),
    ({"priority": "high"}, "`$.priority`"),
]


def test_send_jsonl_of_bad_lines_names_each_and_stores_all_between(duebridge: Command) -> None:
    good = {"body": "x", "delay": "1h"}
    lines = [each for fields, _ in BAD_FIELDS for each in ({**good, **fields}, good)]
    stdin = "\n".join(map(json.dumps, lines)).encode()
    sent = duebridge("send", "reminders", "-", "--jsonl", stdin=stdin)
    assert sent.code == 1
    *said, summary = sent.err.splitlines()
    by_line = dict(line.removeprefix("line ").split(": ", 1) for line in said)
    for place, (_, expected) in enumerate(BAD_FIELDS):
        assert expected in by_line.pop(str(1 + 2 * place))
    assert by_line == {}
    assert sent.out.count("accepted") == len(BAD_FIELDS)
    assert summary == f"{len(BAD_FIELDS)} lines stored, {len(BAD_FIELDS)} refused"
