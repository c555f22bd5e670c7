"""Seeded bugs against the guarantee: each must turn the test red that it names.

python -m tests.faults.mutants [NAME ...]

Each bug is put into a copy of the checkout, and its test runs there.
"""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.faults.edits import CodeEdit, Edit, ScriptEdit, Stale
from tests.support.checkout import copy_tree, environment

WITHIN_S = 300


class Mutant(NamedTuple):
    """A bug that somebody could write, the test that must fail with it, and its code."""

    bug: str
    test: str
    edit: Edit


DELIVERER = "bridge/duebridge/worker/deliverer.py"
RABBITMQ = "connectors/duebridge_connectors/rabbitmq/publishing"
CONFIRMED = "outcome.verdict is Verdict.CONFIRMED"
DELIVERY = "tests/acceptance/worker/test_worker_delivery.py::test_"
UNROUTABLE = (
    "tests/contract/rabbitmq/test_rabbitmq_batches.py"
    "::test_publish_to_a_bad_target_among_good_fails_those_alone"
)
BACKOFF = "tests/unit/test_durations.py::test_delay_"
DELAYS = "bridge/duebridge/worker/backoff.py"
HALFWAY = "tests/store/scripts/test_halfway.py::test_move_that_fails_halfway_loses_no_envelope"
CANCEL = "tests/store/transitions/test_cancel.py::test_cancel_"
INTAKE_STORE = "bridge/duebridge/intake/intake_store.py"
REDELIVERY = "tests/intake/test_redelivery.py::test_"
REMOVE_READY = "redis.call('ZREMRANGEBYRANK', source, 0, #ids - 1)\n"
LEASE = "write_leases(leases)"
DELAYED = "NOW_UP + due"

MUTANTS = {
    "acked_before_the_confirm": Mutant(
        "a batch is acked before it is published",
        f"{DELIVERY}retry_after_failure_waits_for_the_backoff_and_counts",
        CodeEdit(
            DELIVERER,
            "Deliverer.publish",
            "outcomes = self._publish(batch)",
            "batch.view.store.ack([Ack(each, batch.token) for each in batch.ids])\n"
            "outcomes = self._publish(batch)",
        ),
    ),
    "doubt_taken_for_a_confirm": Mutant(
        "a delivery that nobody answered is acked",
        f"{DELIVERY}indeterminate_alone_counts_no_failure_but_is_unsure",
        CodeEdit(DELIVERER, "acks_of", CONFIRMED, "outcome.may_be_published"),
    ),
    "outage_burns_a_retry": Mutant(
        "a broker that is away counts as a failure of each envelope",
        f"{DELIVERY}unavailable_releases_and_stops_the_lane_until_it_answers",
        CodeEdit(
            "bridge/duebridge/worker/decide.py",
            "decide",
            "Release(leased.id)",
            "_fail(leased, outcome, rules)",
        ),
    ),
    "dead_letter_acked_unconfirmed": Mutant(
        "a dead letter leaves the store though its target did not confirm it",
        f"{DELIVERY}keep_dead_letter_that_cannot_be_sent_until_it_can",
        CodeEdit(DELIVERER, "acks_of", CONFIRMED, "outcome.verdict is not Verdict.UNAVAILABLE"),
    ),
    "publish_beyond_the_lease": Mutant(
        "a batch is published with too little of its lease left",
        f"{DELIVERY}publish_with_too_little_lease_left_is_not_begun",
        CodeEdit(
            DELIVERER, "Deliverer._publish", "self._monotonic() > batch.must_start_by", "False"
        ),
    ),
    "claim_repeated": Mutant(
        "a claim whose reply was lost is made again: two leases, one of them nobody's",
        "tests/store/scripts/test_lost_replies.py::test_claim_is_never_repeated[standalone]",
        CodeEdit(
            "bridge/duebridge/store/delay_store.py", "DelayStore.claim", "self._lease", "self._run"
        ),
    ),
    "mandatory_dropped": Mutant(
        "RabbitMQ is not asked to give back what no queue takes, and confirms it",
        UNROUTABLE,
        CodeEdit(f"{RABBITMQ}/encoding.py", "publish_payload", "True", "False"),
    ),
    "unroutable_confirmed": Mutant(
        "a message that RabbitMQ gave back counts as confirmed by the ack that follows",
        UNROUTABLE,
        CodeEdit(
            f"{RABBITMQ}/batch.py", "PendingMessage.settle", "self.returned or outcome", "outcome"
        ),
    ),
    "token_unchecked": Mutant(
        "a late worker settles what another holds",
        "tests/store/transitions/test_settling.py"
        "::test_settle_after_the_lease_went_to_another_leaves_that_one_alone[valkey-ack]",
        ScriptEdit("token ~= NOBODY and string.sub(packed, 1, 12) == token and", ""),
    ),
    "source_before_destination": Mutant(
        "a claim leaves ready before the lease is written: a failure between loses it",
        f"{HALFWAY}[claim]",
        ScriptEdit(f"{LEASE} {REMOVE_READY}", f"{REMOVE_READY}{LEASE}\n", "claim.lua"),
    ),
    "write_error_swallowed": Mutant(
        "a write that the server refuses is passed over, and the source removed all the same",
        f"{HALFWAY}[promote]",
        ScriptEdit("redis.call('ZADD', key, unpack(", "redis.pcall('ZADD', key, unpack("),
    ),
    "call_id_forgotten": Mutant(
        "a cancel whose reply was lost is done again, and answers another word than it did",
        f"{CANCEL}repeated_under_its_call_id_answers_as_it_did[valkey-pending]",
        ScriptEdit("if before then return {NOW, before} end", "", "cancel.lua"),
    ),
    "cancel_under_a_lease": Mutant(
        "a cancel removes what a worker holds, and answers that it is certain",
        f"{CANCEL}in_unack_leaves_a_mark_and_changes_no_lease[valkey]",
        ScriptEdit("if state == 'unack' then", "if state == 'never' then", "cancel.lua"),
    ),
    "due_in_whole_seconds": Mutant(
        "a due instant is cut to whole seconds: up to a second early",
        "tests/store/server/test_clock.py"
        "::test_due_in_whole_seconds_fires_no_part_of_a_second_early[valkey]",
        ScriptEdit(f"due = {DELAYED}", f"due = math.floor(({DELAYED}) / 1000) * 1000"),
    ),
    "tombstone_ignored": Mutant(
        "a row of the cold tier comes back although it was cancelled",
        "tests/store/journal/test_memory.py::test_cancel_of_a_cold_row_is_recorded_and_binds_it[valkey]",
        ScriptEdit("judge_cold(call, given) or 'accepted'", "'accepted'"),
    ),
    "end_forgotten": Mutant(
        "a remembered id that was cancelled is told as delivered",
        "tests/store/journal/test_memory.py"
        "::test_remembered_id_answers_what_became_of_it_for_its_time[valkey-cancel-cancelled]",
        ScriptEdit("ENDED[string.sub(remembered, 15, 15)] or 'duplicate'", "'duplicate'"),
    ),
    "unsure_forgotten": Mutant(
        "what replaces a dead envelope that may be out is cancelled for certain",
        "tests/store/transitions/test_schedule.py"
        "::test_replace_of_a_dead_envelope_that_may_be_out_stays_unsure[valkey-cancel]",
        ScriptEdit("if given.is_unsure then local f", "if false then local f"),
    ),
    "retry_delay_without_a_cap": Mutant(
        "a delay grows beyond the policy's max",
        f"{BACKOFF}doubles_up_to_max_or_stays_fixed",
        CodeEdit(
            DELAYS,
            "retry_delay_ms",
            "min(policy.max, policy.initial * 2 ** min(retries, MAX_DOUBLINGS))",
            "policy.initial * 2 ** min(retries, MAX_DOUBLINGS)",
        ),
    ),
    "retry_delay_without_growth": Mutant(
        "each delay is the first one",
        f"{BACKOFF}doubles_up_to_max_or_stays_fixed",
        CodeEdit(DELAYS, "retry_delay_ms", "2 ** min(retries, MAX_DOUBLINGS)", "1"),
    ),
    "retry_delay_without_jitter": Mutant(
        "what failed together comes back together",
        f"{BACKOFF}full_jitter_takes_a_share_of_the_whole",
        CodeEdit(DELAYS, "retry_delay_ms", "round(delay_ms * random())", "delay_ms"),
    ),
}
# Bugs of an intake, and of the cold tier's part in the store.
INTAKE = "bridge/duebridge/intake/intake.py"
COPIES = "tests/store/cold/test_cold_copies.py::test_"
MUTANTS |= {
    "settled_before_it_is_stored": Mutant(
        "a broker forgets what the store has not accepted",
        "tests/intake/test_loop.py::test_store_that_is_away_keeps_the_batch_and_takes_nothing_more",
        CodeEdit(
            INTAKE,
            "IntakeLoop._go_on",
            "self._store_batch(batch)",
            "(self.source.settle(batch.arrivals), self._store_batch(batch))",
        ),
    ),
    "settled_before_its_letter_is_out": Mutant(
        "a refused message is forgotten though nobody confirmed its dead letter",
        "tests/intake/test_letters.py::test_letter_that_is_not_confirmed_holds_the_batch",
        CodeEdit(INTAKE, "IntakeLoop._send_letters", "raise unsent.held", "pass"),
    ),
    "taken_in_and_not_given_back": Mutant(
        "a later settle passes messages that an error left in nobody's hands",
        "tests/intake/test_loop_errors.py"
        "::test_error_before_a_received_batch_is_in_hand_brings_the_messages_again[1]",
        CodeEdit(INTAKE, "IntakeLoop._take_in", "self._give_back()", "None"),
    ),
    "redelivery_revives": Mutant(
        "a message that is delivered again revives the envelope that was cancelled meanwhile",
        f"{REDELIVERY}record_without_a_place_that_comes_again_after_its_end_begins_nothing",
        CodeEdit(INTAKE_STORE, "IntakeStore._mode", "is_repeated", "False"),
    ),
    "taken_in_before_and_not_known": Mutant(
        "a message that is delivered again is stored beside the envelope that has its id by now",
        f"{REDELIVERY}redelivered_message_whose_id_was_used_again_after_its_end_begins_nothing",
        CodeEdit(
            INTAKE_STORE,
            "IntakeStore._schedule",
            "self._not_taken(scheduler, call) if is_repeated else call.prepared",
            "call.prepared",
        ),
    ),
    "earlier_place_replaces": Mutant(
        "a message that is read again replaces what a later one of its key has scheduled",
        "tests/intake/test_replacing.py::test_same_key_replaces_only_from_a_later_place",
        ScriptEdit(
            "judge_beside(batch, call, given, record) end if is_passed(place) then",
            "judge_beside(batch, call, given, record) end if false then",
        ),
    ),
    "committed_beyond_what_was_settled": Mutant(
        "a commit passes a record that nobody settled",
        "tests/contract/kafka/test_kafka_sources.py::TestKafkaSources"
        "::test_messages_that_were_not_settled_come_again_with_the_same_ids[kafka-python]",
        CodeEdit(
            "connectors/duebridge_connectors/kafka/source/source.py",
            "KafkaSource.settle",
            "offset + 1",
            "offset + 2",
        ),
    ),
    "acknowledged_with_what_came_before": Mutant(
        "an acknowledgement takes earlier messages along that are not settled",
        "tests/contract/rabbitmq/test_rabbitmq_source_faults.py"
        "::test_settle_later_messages_first_forgets_only_those",
        CodeEdit(
            "connectors/duebridge_connectors/rabbitmq/source/consumer.py",
            "QueueConsumer.acknowledge",
            "not self._unsettled or next(iter(self._unsettled)) > last",
            "True",
        ),
    ),
    "demoted_though_it_changed": Mutant(
        "an envelope leaves the store for a copy of what it was before",
        "tests/store/cold/test_cold_tier.py"
        "::test_demote_of_what_changed_since_changes_nothing_and_voids_the_copy[valkey-replaced]",
        ScriptEdit("and number_at(record, 26, 31) == generations[i] and", "and"),
    ),
    "demoted_though_its_copy_is_void": Mutant(
        "an envelope leaves the store for a copy that an earlier one of its batch has made void",
        "tests/store/cold/test_cold_tier.py"
        "::test_demote_of_what_was_copied_before_and_after_a_change_leaves_it[valkey-1-replaced]",
        ScriptEdit("and not is_void[id]", ""),
    ),
    "demoted_though_its_copy_has_ended": Mutant(
        "an envelope leaves the store for a copy that a tombstone binds",
        f"{COPIES}demote_of_an_id_whose_row_was_void_at_its_mark_keeps_it_for_the_next_batch"
        "[valkey-copied first-filter]",
        ScriptEdit("is_same and not is_bound(i)", "is_same"),
    ),
    "demoted_behind_the_back_of_a_hydrate": Mutant(
        "an envelope goes cold though a hydrate counts it as in the store",
        "tests/store/cold/test_cold_tier.py"
        "::test_demote_leaves_what_is_due_before_a_hydrate_brings_back[valkey-hydrating_until]",
        ScriptEdit("and tonumber(scores[i]) >= kept_until", ""),
    ),
    "progress_of_a_batch_forgotten": Mutant(
        "a demote that goes on late begins again, and what has left the store is void",
        "tests/store/cold/test_cold_tier.py"
        "::test_demote_goes_on_where_it_was_whatever_became_of_max_delay[valkey-raised]",
        ScriptEdit("t = 7, x = 7, d = 25", "t = 7, x = 7", "memory.lua"),
    ),
    "cold_copy_of_an_earlier_life": Mutant(
        "a hydrate brings back the copy of an id that was scheduled again since",
        f"{COPIES}schedule_in_a_batch_ends_the_copies_of_the_cold_ids_and_no_others[valkey]",
        ScriptEdit(
            "end_cold_copies(batch.anew, batch.before, call.note_ms, call.has_cold_tier)",
            "",
            "accept.lua",
        ),
    ),
    "hydrate_without_its_lease": Mutant(
        "a hydrate writes on after another job has taken its tier",
        f"{COPIES}hydrate_without_its_lease_is_refused[valkey]",
        ScriptEdit(
            "if has_lost_cold_lease(lease) then return refuse_without_lease() end",
            "",
            "schedule.lua",
        ),
    ),
}
# What the audit computes each violation from, and the same as if it never happened.
UNREPORTED = {
    "lost": ("due.keys() - accounted", "()"),
    "early": ("each.at_ms < due[each.id]", "False"),
    "after_cancel": ("history.cancelled & (copies.keys() | dead)", "()"),
    "unexpected": ("(copies.keys() | dead) - known", "()"),
    "corrupt": ("_corrupt(came, sent)", "[]"),
    "stuck": ("state != 'dead'", "False"),
    "misplaced": ("each.is_misplaced", "False"),
    "misdated": ("_misdated(came, history.accepted)", "[]"),
    "in_two_places": ("copies.keys() & dead", "()"),
    "duplicates": ("count > 1", "False"),
    "dead": ("sorted(dead)", "[]"),
}
MUTANTS |= {
    f"audit_without_{kind}": Mutant(
        f"the audit reports no envelope that is {kind}",
        "tests/unit/test_audit.py::test_audit_of_a_planted_violation_names_it",
        CodeEdit("bridge/duebridge/audit.py", "audit", old, new),
    )
    for kind, (old, new) in UNREPORTED.items()
}

# What makes an id of a reconcile ordinary, so that nobody judges it; each condition left out.
SIFTING = "connectors/duebridge_connectors/spark/transforms/ordinary_ids.py"
ALWAYS = "F.lit(True)"
UNASKED = {
    "stuck": (
        "_bits",
        "is_stuck | _is(*_DATED) & F.col('due_ms').isNull()",
        "_is(*_DATED) & F.col('due_ms').isNull()",
    ),
    "stray": ("_is_ordinary", "_has(_ODD, *_SEVERAL, *_STRAYS)", "_has(_ODD, *_SEVERAL)"),
    "twice": ("_is_ordinary", "F.bit_count('kinds') == F.col('facts')", ALWAYS),
    "lost": ("_is_ordinary", "_has(*_ENDS)", ALWAYS),
    "unexpected": (
        "_is_ordinary",
        "_has(_ODD, *_BEGINS, what.REPLACED, *_CAME, *_STRAYS)",
        "_has(_ODD, *_BEGINS, what.REPLACED, *_STRAYS)",
    ),
    "after_cancel": (
        "_is_ordinary",
        "is_one_life & ~is_both & _agrees(window)",
        "is_one_life & _agrees(window)",
    ),
    "early": ("_agrees", "late_by >= -window.skew_ms", ALWAYS),
    "late": ("_agrees", "late_by <= window.late_ms", ALWAYS),
    "corrupt": ("_agrees", "F.col('least_print') == F.col('most_print')", ALWAYS),
    "misdated": ("_agrees", "F.col('least_due') == F.col('most_due')", ALWAYS),
}
MUTANTS |= {
    f"sift_without_{kind}": Mutant(
        f"a reconcile takes an id that may be {kind.replace('_', ' ')} for an ordinary one",
        "tests/spark/reconcile/test_reconcile_sifting.py"
        "::test_sift_of_any_stories_leaves_out_only_ids_with_nothing_wrong",
        CodeEdit(SIFTING, function, old, new),
    )
    for kind, (function, old, new) in UNASKED.items()
}


def run(tree: Path, tests: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    options = ["-q", "--tb=short", "-pno:cacheprovider", "-m", ""]  # those of the long suite, too
    command = [sys.executable, "-m", "pytest", *options, *tests]
    return subprocess.run(
        command, cwd=tree, env=environment(tree), capture_output=True, text=True, timeout=WITHIN_S
    )


def fault_of(name: str, mutant: Mutant, home: Path) -> str:
    """Return why the mutant does not count as caught; nothing where it does."""
    tree = home / name
    copy_tree(tree)
    try:
        mutant.edit.apply(tree)
    except Stale as error:
        return str(error)
    done = run(tree, [mutant.test])
    shutil.rmtree(tree)
    has_failed = done.returncode == 1 and f"FAILED {mutant.test}" in done.stdout
    return "" if has_failed else f"{mutant.test} did not fail:\n{done.stdout}{done.stderr}"


def main(names: Sequence[str]) -> int:
    chosen = {name: MUTANTS[name] for name in names or MUTANTS}
    survivors = 0
    with tempfile.TemporaryDirectory(prefix="mutants-") as made:
        plain = Path(made, "plain")
        copy_tree(plain)
        before = run(plain, sorted({mutant.test for mutant in chosen.values()}))
        if before.returncode:
            print(before.stdout, before.stderr)  # noqa: T201 - a program's answer
            return 1
        for name, mutant in chosen.items():
            fault = fault_of(name, mutant, Path(made))
            survivors += bool(fault)
            print(f"{'SURVIVES' if fault else 'caught'}  {name}: {mutant.bug} {fault}")  # noqa: T201
    return int(survivors > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
