"""What a worker writes into its log."""

from structlog.testing import capture_logs

from duebridge.ports.publisher import Outcome, Reason, Verdict
from tests.acceptance.floor import Floor

FAILED = Outcome(Verdict.FAILED, error_class="Nack", error_message="not now")
REJECTED = Outcome(Verdict.REJECTED, Reason.TOO_LARGE, "TooLarge", "2 MiB")


def test_log_after_a_failure_names_route_id_attempt_and_error(floor: Floor) -> None:
    floor.publisher.script(lambda _: FAILED)
    floor.schedule("a", "b")
    with capture_logs() as logs:
        floor.turn(1000)
    lines = [line for line in logs if line["event"] == "retried"]
    assert len(lines) == 1
    assert lines[0].items() >= {
        "log_level": "info", "route": "r", "id": "a", "attempt": 1, "count": 2, "counted": True,
        "error": "Nack: not now",
    }.items()  # fmt: skip
    each = [line["id"] for line in logs if line["event"] == "envelope"]
    assert each == ["a", "b"]


def test_log_after_a_burial_is_a_warning_with_the_reason(floor: Floor) -> None:
    floor.publisher.script(lambda delivery: REJECTED if delivery.target.topic == "t" else None)
    floor.schedule("a")
    with capture_logs() as logs:
        floor.turn(1000)
    line = next(line for line in logs if line["event"] == "buried")
    assert (line["log_level"], line["reason"], line["id"]) == ("warning", "too_large", "a")


def test_log_of_a_whole_life_shows_no_body_key_or_header(floor: Floor) -> None:
    floor.publisher.script(lambda delivery: FAILED if delivery.target.topic == "t" else None)
    floor.schedule("a", delay="1s", key=b"canary-key", headers={"tenant": "canary-header"})
    with capture_logs() as logs:
        for wait_ms in (1000, 1000, 2000, 1000):
            floor.turn(wait_ms)
    assert {line["event"] for line in logs} >= {"retried", "buried", "shunted"}
    assert "canary" not in str(logs)
    assert "body of a" not in str(logs)
