"""Many envelopes in a request: streamed in, streamed out, and a client that hangs up."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from duebridge.http.endpoints.lines import Splitter
from tests.support.servers import wait_until
from tests.support.serving import NDJSON, ORDERS, SECRETS, Served, serving, token_lines


def line(name: str, **given: Any) -> bytes:
    return json.dumps({"id": name, "body": "x", "delay": "1h", **given}).encode() + b"\n"


def send(client: httpx.Client, content: Any, path: str = ORDERS) -> list[dict[str, Any]]:
    answer = client.post(path, content=content, headers=NDJSON)
    assert answer.status_code == 200, answer.text
    return [json.loads(each) for each in answer.text.splitlines()]


def test_lines_are_answered_in_order_each_with_its_receipt(
    served: Served, client: httpx.Client
) -> None:
    names = [f"many-{number}" for number in range(500)]
    receipts = send(client, (line(name) for name in names))
    assert [each["id"] for each in receipts] == names
    assert {each["status"] for each in receipts} == {"accepted"}
    assert served.stored().keys() >= set(names)


def test_line_that_is_refused_loses_none_of_the_others(client: httpx.Client) -> None:
    content = line("good-1") + b"{\n\n# a comment\n" + line("bad", delay="99d") + b'{"body": "x"}\n'
    receipts = send(client, content + line("good-1", body="other") + line("good-2").strip())
    assert [(each["id"], each["status"]) for each in receipts] == [
        ("good-1", "accepted"),
        ("", "refused"),
        ("bad", "refused"),
        ("", "refused"),
        ("good-1", "conflict"),
        ("good-2", "accepted"),
    ]
    assert [each["error"][:7] for each in receipts if "error" in each] == [
        "line 2:",
        "line 5:",
        "line 6:",
    ]


@pytest.mark.parametrize("name", ["as_dict", "fields", "self", "__reduce_ex__", "_x"])
def test_line_with_an_unknown_field_of_a_target_is_refused_alone(
    client: httpx.Client, name: str
) -> None:
    target = {"broker": "here", name: "y"}
    content = line(f"a{name}") + line("strange", target=target) + line(f"z{name}")
    receipts = send(client, content)
    assert [each["status"] for each in receipts] == ["accepted", "refused", "accepted"]
    assert f"line 2: target.{name}: unknown field" in receipts[1]["error"]
    answer = client.post(ORDERS, json={"body": "x", "delay": "1h", "target": target})
    assert answer.status_code == 422
    assert f"target.{name}: unknown field" in answer.text


def test_lines_may_replace(client: httpx.Client) -> None:
    send(client, line("twice"))
    (receipt,) = send(client, line("twice", body="y"), f"{ORDERS}?on_conflict=replace")
    assert receipt["status"] == "replaced"


def test_line_that_is_too_long_is_refused_alone(client: httpx.Client) -> None:
    path = "/v1/routes/small/envelopes"
    content = line("short-1") + line("long", body="x" * 300_000) + line("short-2")
    receipts = send(client, content, path)
    assert [each["status"] for each in receipts] == ["accepted", "refused", "accepted"]
    assert "at most" in receipts[1]["error"]


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_splitter_finds_the_same_lines_in_parts_of_any_size(size: int) -> None:
    text = b"one\n\ntwo\nxxxxxxxxxxxxxxx\nlast"
    splitter = Splitter(5)
    parts = (text[at : at + size] for at in range(0, len(text), size))
    lines = [each for part in parts for each in splitter.feed(part)] + splitter.end()
    assert [each[:6] for each in lines] == [b"one", b"", b"two", b"xxxxxx", b"last"]


class Upload:
    """A request whose body is sent by hand, over a socket."""

    def __init__(self, served: Served, more: str = "") -> None:
        self.socket = socket.create_connection(("127.0.0.1", served.port), 30)
        head = (
            f"POST {ORDERS} HTTP/1.1\r\nHost: localhost\r\n"
            f"Authorization: Bearer {SECRETS['all']}\r\n"
            f"Content-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n{more}\r\n"
        )
        self.socket.sendall(head.encode())
        self.answer = b""

    def send(self, part: bytes) -> None:
        self.socket.sendall(f"{len(part):x}\r\n".encode() + part + b"\r\n")

    def read_until(self, text: bytes) -> None:
        while text not in self.answer:
            got = self.socket.recv(65536)
            assert got, self.answer
            self.answer += got


@pytest.fixture
def upload(served: Served) -> Iterator[Upload]:
    upload = Upload(served)
    yield upload
    upload.socket.close()


def test_receipt_comes_while_the_request_goes_on(upload: Upload) -> None:
    upload.send(line("early-1"))
    upload.read_until(b'"early-1"')
    upload.send(line("early-2"))
    upload.read_until(b'"early-2"')


@pytest.mark.parametrize(
    ("lost", "tokens", "said"),
    [
        ("token", [], "expected Bearer and a known token"),
        ("scope", [{"name": "all", "scopes": ["read"]}], "scope: expected schedule; got read"),
        (
            "route",
            [{"name": "all", "scopes": ["schedule"], "routes": ["small"]}],
            "route: expected one of",
        ),
    ],
)
def test_stream_whose_token_loses_its_right_stores_nothing_more(
    tmp_path: Path, store_url: str, lost: str, tokens: list[dict[str, Any]], said: str
) -> None:
    with serving(tmp_path / f"without-{lost}", store_url) as served, served.client() as client:

        def lines() -> Iterator[bytes]:
            yield line("before")
            wait_until(lambda: "before" in served.stored(), "the first line")
            (served.home / "tokens.yaml").write_text(token_lines(tokens))
            wait_until(lambda: client.post(ORDERS).status_code in (401, 403), "the change")
            yield line("after")

        with served.client() as streaming:
            first, last = send(streaming, lines())
        assert (first["id"], first["status"]) == ("before", "accepted")
        assert (last["id"], last["status"]) == ("", "unavailable")
        assert said in last["error"]
        assert served.stored().keys() == {"before"}


def ended(served: Served) -> list[Any]:
    """The requests with envelopes that have ended."""
    return [each for each in served.logged("http") if each["path"].endswith("/envelopes")]


def test_client_that_hangs_up_loses_no_whole_line(served: Served, upload: Upload) -> None:
    before = len(ended(served))
    upload.send(line("whole-1"))
    upload.read_until(b'"whole-1"')
    upload.send(line("whole-2") + line("half").strip())  # its end may be still to come
    upload.socket.close()
    wait_until(lambda: "whole-2" in served.stored(), "the whole line")
    wait_until(lambda: len(ended(served)) > before, "the request to end")
    assert "half" not in served.stored()


def test_drain_ends_each_stream_after_the_lines_in_hand_with_200(
    tmp_path: Path, store_url: str
) -> None:
    with serving(tmp_path / "drained", store_url) as served:
        in_hand = Upload(served)
        in_hand.send(line("in-hand") + line("half").strip())
        in_hand.read_until(b'"in-hand"')
        empty, begun = early = [Upload(served, "Expect: 100-continue\r\n") for _ in range(2)]
        for upload in early:
            upload.read_until(b"100 Continue\r\n\r\n")  # the body is being read
        begun.send(b'{"body": "x"')
        served.process.terminate()
        for upload in (in_hand, empty, begun):
            upload.read_until(b"0\r\n\r\n")
            assert b"HTTP/1.1 200 OK\r\n" in upload.answer
        assert served.process.wait(30) == 0
        assert served.stored().keys() == {"in-hand"}
        for upload in (in_hand, empty, begun):
            upload.socket.close()


@pytest.mark.parametrize("content", [b"", b"\n\n", b"# nothing\n", b"\n# nothing"])
def test_answer_lines_without_an_envelope_is_200_and_empty(
    client: httpx.Client, content: bytes
) -> None:
    assert send(client, content) == []


def test_client_that_sends_everything_before_it_reads_gets_every_receipt(served: Served) -> None:
    upload, count = Upload(served), 20_000
    for first in range(0, count, 500):
        upload.send(b"".join(line("same") for _ in range(first, first + 500)))
    upload.socket.sendall(b"0\r\n\r\n")
    upload.read_until(b"0\r\n\r\n")
    assert upload.answer.count(b'"same"') == count
    upload.socket.close()
