"""What the metrics of an intake say of the messages that it took in."""

from prometheus_client import REGISTRY

from duebridge.ports.publisher import Outcome, Reason, Verdict
from duebridge.telemetry import metrics
from tests.intake.entrance import Entrance, queued

COUNTERS = ("received", "accepted", "duplicates", "cancelled", "without_id")


def value(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(f"duebridge_intake_{name}", {"intake": "in", **labels}) or 0.0


def counted() -> dict[str, float]:
    found = {name: value(f"{name}_total") for name in COUNTERS}
    return found | {"refused": value("refused_total", reason="invalid")}


def test_count_messages_of_each_kind_says_what_became_of_them(entrance: Entrance) -> None:
    before = counted()
    entrance.take(queued("a", x_delay=5000), queued("b", x_delay=5000))
    entrance.take(
        queued("a", x_delay=5000),
        queued("c", x_cancel="b"),
        queued("d", x_cancel="unknown"),
        queued("e", x_delay="soon"),
        queued("", x_delay=5000),
    )
    after = {name: found - before[name] for name, found in counted().items()}
    assert after == {
        "received": 7.0,
        "accepted": 3.0,  # a, b, and the one without an id
        "duplicates": 1.0,
        "cancelled": 1.0,
        "without_id": 1.0,
        "refused": 1.0,
    }


def test_count_a_letter_that_is_held_says_how_long_it_waits(entrance: Entrance) -> None:
    loop, before = entrance.loop, value("refused_total", reason="invalid")
    metrics.begin_intake("in", loop.known_lag, loop.is_up, loop.waiting_s)
    missing = Outcome(Verdict.TARGET_FAILED, Reason.TARGET_MISSING, "E", "no topic")
    entrance.publisher.script(lambda _: missing)
    assert entrance.take(queued("a", x_delay="soon")) == 0
    entrance.now_s += 7.0
    assert value("waiting_seconds") == 7.0
    assert value("refused_total", reason="invalid") == before

    entrance.publisher.script(lambda _: None)
    assert loop.run_once() == 1
    assert value("waiting_seconds") == 0.0
    assert value("refused_total", reason="invalid") == before + 1.0


def test_count_a_letter_that_its_target_rejects_says_that_it_is_kept(entrance: Entrance) -> None:
    before = value("letters_kept_total")
    rejected = Outcome(Verdict.REJECTED, Reason.TOO_LARGE, "E", "too large")
    entrance.publisher.script(lambda _: rejected)
    assert entrance.take(queued("a", x_delay="soon")) == 1
    assert value("letters_kept_total") == before + 1.0
