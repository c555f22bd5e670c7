from tests.support.desk import NOT_MINE, NOW_MS, Desk, acks, envelope, remembering


def test_ack_is_journalled_with_due_and_attempt(desk: Desk) -> None:
    desk.retry("a")
    desk.clock.advance(1000)
    claim = desk.claim_all()
    desk.store.ack(acks(claim.token, "a"))
    entry = desk.last_entry()
    assert (entry.kind, entry.at_ms) == ("delivered", desk.clock())
    assert entry.items == [("a", (NOW_MS + 1000, 2, None))]


def test_ack_forgets_everything_of_an_envelope(desk: Desk) -> None:
    claim = desk.unack("a", "b")
    settled = desk.store.ack(acks(claim.token, "a", "b"))
    assert (settled.stale, settled.repeated, settled.poll.unack) == ([], False, 0)
    found = desk.check()
    left = {name for name, value in found.items() if value}
    assert left == {"meta", "journal"}, "an ack left orphans"


def test_ack_with_a_strange_token_is_stale_and_changes_nothing(desk: Desk) -> None:
    claim = desk.unack("a", "b")
    with desk.unchanged():
        for token in (NOT_MINE, bytes(12), b"", claim.token[:-1], claim.token + b"x"):
            assert desk.store.ack(acks(token, "a", "b", "nobody")).stale == ["a", "b", "nobody"]


def test_ack_of_several_claims_takes_each_by_its_own_token(desk: Desk) -> None:
    first, second = desk.unack("a", "b"), desk.unack("c")
    settled = desk.store.ack(acks(first.token, "a", "b") + acks(second.token, "c"))
    assert (settled.stale, settled.poll.unack) == ([], 0)
    assert {name for name, value in desk.check().items() if value} == {"meta", "journal"}


def test_ack_of_several_claims_with_the_token_of_another_is_stale(desk: Desk) -> None:
    first, second = desk.unack("a", "b"), desk.unack("c")
    settled = desk.store.ack(acks(first.token, "a", "b", "c"))
    assert settled.stale == ["c"]
    settled = desk.store.ack(acks(first.token, "c") + acks(second.token, "nobody"))
    assert settled.stale == ["c", "nobody"]


def test_ack_of_mixed_ids_acks_what_it_holds(desk: Desk) -> None:
    claim = desk.unack("a", "b")
    assert desk.store.ack(acks(claim.token, "nobody", "a", "other")).stale == ["nobody", "other"]
    assert desk.journal()[-1] == ("delivered", ["a"])


def test_ack_of_a_marked_one_is_a_delivery(desk: Desk) -> None:
    claim = desk.unack("a")
    assert desk.store.cancel("a") == "in_flight"
    assert desk.store.ack(acks(claim.token, "a")).stale == []
    assert desk.journal()[-1] == ("delivered", ["a"])


def test_ack_of_a_dead_letter_ends_it_as_shunted(desk: Desk) -> None:
    claim = desk.shunt("a", "b")
    assert desk.store.ack(acks(claim.token, "a", "b"), shunted=True).stale == []
    assert desk.last_entry().kind == "shunted"
    assert [note.attempt for _, note in desk.last_entry().items] == [1, 1]
    assert {name for name, value in desk.check().items() if value} == {"meta", "journal"}


def test_ack_of_several_claims_remembers_each_id_with_its_own_hash(desk: Desk) -> None:
    kept = envelope("c", remember="1h")
    first, second = desk.unack("a", "b"), desk.unack(kept)
    desk.store.ack(remembering(first) + remembering(second))
    assert [each.status for each in desk.schedule("a", kept)] == ["accepted", "duplicate"]


def test_ack_of_1000_of_the_longest_ids_is_one_step(desk: Desk) -> None:
    ids = [f"{n:04d}{'x' * 251}" for n in range(1000)]
    claim = desk.unack(*[envelope(name, remember="1h") for name in ids])

    assert desk.store.ack(remembering(claim)).stale == []
    assert len(desk.check()["memory"]) == 1000
