"""One bad delivery changes no other's outcome, whichever thread it came from."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from duebridge.envelope import Target
from duebridge.ports.publisher import Delivery, Outcome, Publisher, Reason, Verdict
from tests.support.contract.broker_under_test import BrokerUnderTest, delivery, ids, needs, verdicts
from tests.support.running_clock import ends_within

DEADLINE_S = 15.0


class FaultContract:
    """Bad deliveries among good ones."""

    def test_publish_too_large_among_good_rejects_it_alone(
        self, broker: BrokerUnderTest, publisher: Publisher, target: Target
    ) -> None:
        needs(broker, "size_limit")
        bad = broker.too_large(target)
        bad_outcome = self._publish_among_good(broker, publisher, target, bad)
        assert (bad_outcome.verdict, bad_outcome.reason) == (Verdict.REJECTED, Reason.TOO_LARGE)

    def test_publish_to_missing_target_among_good_fails_it_alone(
        self, broker: BrokerUnderTest, publisher: Publisher, target: Target
    ) -> None:
        needs(broker, "missing_target")
        bad = delivery(broker.missing_target())
        with ends_within(DEADLINE_S * 2 / 3):
            outcome = self._publish_among_good(broker, publisher, target, bad)
        assert outcome.verdict is Verdict.TARGET_FAILED
        assert outcome.reason in {Reason.TARGET_MISSING, Reason.UNROUTABLE}

    def test_publish_invalid_among_good_rejects_it_alone(
        self, broker: BrokerUnderTest, publisher: Publisher
    ) -> None:
        needs(broker, "invalid")
        bad, good = broker.invalid()
        outcomes = publisher.publish([good, bad, good])
        expected = [Verdict.CONFIRMED, Verdict.REJECTED, Verdict.CONFIRMED]
        assert verdicts(outcomes) == expected
        assert outcomes[1].reason is Reason.INVALID
        assert ids(broker.read_all(good.target)) == [good.id, good.id]

    def test_publish_only_bad_names_each_fault(
        self, broker: BrokerUnderTest, publisher: Publisher
    ) -> None:
        needs(broker, "missing_target")
        outcomes = publisher.publish([delivery(broker.missing_target()) for _ in range(3)])
        assert verdicts(outcomes) == [Verdict.TARGET_FAILED] * 3
        assert all(outcome.error for outcome in outcomes)

    def test_publish_after_missing_target_appears_confirms(
        self, broker: BrokerUnderTest, publisher: Publisher
    ) -> None:
        needs(broker, "missing_target")
        target = broker.missing_target()
        assert verdicts(publisher.publish([delivery(target)])) == [Verdict.TARGET_FAILED]
        broker.create(target)
        assert verdicts(publisher.publish([delivery(target)])) == [Verdict.CONFIRMED]

    def test_publish_after_target_disappears_fails_that_target_alone(
        self, broker: BrokerUnderTest, publisher: Publisher, target: Target
    ) -> None:
        needs(broker, "missing_target")
        doomed = broker.missing_target()
        broker.create(doomed)
        mixed = [delivery(doomed), delivery(target)]
        assert verdicts(publisher.publish(mixed)) == [Verdict.CONFIRMED] * 2
        broker.delete(doomed)
        assert verdicts(publisher.publish(mixed)) == [Verdict.TARGET_FAILED, Verdict.CONFIRMED]

    def _publish_among_good(
        self, broker: BrokerUnderTest, publisher: Publisher, target: Target, bad: Delivery
    ) -> Outcome:
        good = [delivery(target, b"%d" % n) for n in range(20)]
        outcomes = list(publisher.publish([*good[:10], bad, *good[10:]]))
        bad_outcome = outcomes.pop(10)
        assert verdicts(outcomes) == [Verdict.CONFIRMED] * 20
        assert sorted(ids(broker.read_all(target))) == sorted(ids(good))
        return bad_outcome

    def test_publish_by_eight_threads_gives_each_its_own_outcomes(
        self, broker: BrokerUnderTest, publisher: Publisher, target: Target
    ) -> None:
        missing = broker.missing_target() if broker.features.missing_target else None
        barrier = threading.Barrier(8)
        run = _one_of_eight(publisher, target, missing, barrier)
        with ThreadPoolExecutor(8) as pool:
            confirmed = [id_ for ids_ in pool.map(run, range(8)) for id_ in ids_]
        assert sorted(ids(broker.read_all(target))) == sorted(confirmed)


def _one_of_eight(
    publisher: Publisher, target: Target, missing: Target | None, barrier: threading.Barrier
) -> Callable[[int], list[str]]:
    """Return a thread's work: batches whose bad delivery sits at the thread's own place."""

    def run(place: int) -> list[str]:
        confirmed: list[str] = []
        barrier.wait(DEADLINE_S)
        for _ in range(5):
            batch = [delivery(target) for _ in range(50)]
            expected = [Verdict.CONFIRMED] * 50
            if missing is not None:
                batch[place] = delivery(missing)
                expected[place] = Verdict.TARGET_FAILED
            assert verdicts(publisher.publish(batch)) == expected
            confirmed += [d.id for d in batch if d.target == target]
        return confirmed

    return run
