"""Seeded bugs against the guarantee: each must turn the test red that it names.

python -m tests.faults.mutants [NAME ...]

Each bug is put into a copy of the checkout, and its test runs there. Code is found by its text,
in which spaces do not count, and has to be there once.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.support.checkout import copy_tree, environment

WITHIN_S = 300
CODE = ("bridge/**/*.py", "connectors/**/*.py", "lua/**/*.lua")


class Stale(Exception):
    """The code that a mutant changes is not there, or is there twice."""


class Mutant(NamedTuple):
    """A bug that somebody could write, the test that must fail with it, and code by its text.

    `script` names the file where several have the text.
    """

    bug: str
    test: str
    changes: dict[str, str]
    script: str = ""


DELIVERY = "tests/acceptance/test_worker_delivery.py::test_"
UNROUTABLE = (
    "tests/contract/test_rabbitmq_batches.py"
    "::test_publish_to_a_bad_target_among_good_fails_those_alone"
)
HALFWAY = "tests/store/test_halfway.py::test_move_that_fails_halfway_loses_no_envelope"
CANCEL = "tests/store/test_cancel.py::test_cancel_"
REMOVE_READY = "redis.call('ZREMRANGEBYRANK', source, 0, #ids - 1)\n"
LEASE = "write_leases(leases)"
SECONDS_UP = "NOW_UP + tonumber(string.sub(given, 2))"

MUTANTS = {
    "acked_before_the_confirm": Mutant(
        "a batch is acked before it is published",
        f"{DELIVERY}retry_after_failure_waits_for_the_backoff_and_counts",
        {
            "outcomes = self._publish(batch)": "batch.view.store.ack("
            "[Ack(each, batch.token) for each in batch.ids]); outcomes = self._publish(batch)"
        },
    ),
    "doubt_taken_for_a_confirm": Mutant(
        "a delivery that nobody answered is acked",
        f"{DELIVERY}indeterminate_alone_counts_no_failure_but_is_unsure",
        {"if outcome.verdict is Verdict.CONFIRMED ] raw": "if outcome.may_be_published ] raw"},
    ),
    "outage_burns_a_retry": Mutant(
        "a broker that is away counts as a failure of each envelope",
        f"{DELIVERY}unavailable_releases_and_stops_the_lane_until_it_answers",
        {"return Release(leased.id)": "return _fail(leased, outcome, terms)"},
    ),
    "dead_letter_acked_unconfirmed": Mutant(
        "a dead letter leaves the store though its target did not confirm it",
        f"{DELIVERY}keep_dead_letter_that_cannot_be_sent_until_it_can",
        {
            "if outcome.verdict is Verdict.CONFIRMED ] raw": ""
            "if outcome.verdict is not Verdict.UNAVAILABLE]\n    raw"
        },
    ),
    "publish_beyond_the_lease": Mutant(
        "a batch is published with too little of its lease left",
        f"{DELIVERY}publish_with_too_little_lease_left_is_not_begun",
        {"self._monotonic() > batch.must_start_by": "False"},
    ),
    "claim_repeated": Mutant(
        "a claim whose reply was lost is made again: two leases, one of them nobody's",
        "tests/store/test_lost_replies.py::test_claim_is_never_repeated[standalone]",
        {'self._lease("claim"': 'self._run("claim"'},
    ),
    "mandatory_dropped": Mutant(
        "RabbitMQ is not asked to give back what no queue takes, and confirms it",
        UNROUTABLE,
        {"mandatory=True": "mandatory=False"},
        script="encoding.py",
    ),
    "unroutable_confirmed": Mutant(
        "a message that RabbitMQ gave back counts as confirmed by the ack that follows",
        UNROUTABLE,
        {"self.returned or outcome": "outcome"},
    ),
    "token_unchecked": Mutant(
        "a late worker settles what another holds",
        "tests/store/test_settling.py"
        "::test_settle_after_the_lease_went_to_another_leaves_that_one_alone[valkey-ack]",
        {"token ~= NOBODY and string.sub(packed, 1, 12) == token and": ""},
    ),
    "source_before_destination": Mutant(
        "a claim leaves ready before the lease is written: a failure between loses it",
        f"{HALFWAY}[claim]",
        {f"{LEASE} {REMOVE_READY}": f"{REMOVE_READY}{LEASE}\n"},
        script="claim.lua",
    ),
    "write_error_swallowed": Mutant(
        "a write that the server refuses is passed over, and the source removed all the same",
        f"{HALFWAY}[promote]",
        {"redis.call('ZADD', key, unpack(": "redis.pcall('ZADD', key, unpack("},
    ),
    "call_id_forgotten": Mutant(
        "a cancel whose reply was lost is done again, and answers another word than it did",
        f"{CANCEL}repeated_under_its_call_id_answers_as_it_did[valkey-pending]",
        {"if before then return {NOW, before} end": ""},
        script="cancel.lua",
    ),
    "cancel_under_a_lease": Mutant(
        "a cancel removes what a worker holds, and answers that it is certain",
        f"{CANCEL}in_unack_leaves_a_mark_and_changes_no_lease[valkey]",
        {"if state == 'unack' then": "if state == 'never' then"},
        script="cancel.lua",
    ),
    "due_in_whole_seconds": Mutant(
        "a due instant is cut to whole seconds: up to a second early",
        "tests/store/test_clock.py"
        "::test_due_in_whole_seconds_fires_no_part_of_a_second_early[valkey]",
        {f"return {SECONDS_UP}": f"return math.floor(({SECONDS_UP}) / 1000) * 1000"},
    ),
    "tombstone_ignored": Mutant(
        "a row of the cold tier comes back although it was cancelled",
        "tests/store/test_memory.py::test_cancel_of_a_cold_row_is_recorded_and_binds_it[valkey]",
        {"given.generation > 0 and judge_cold(given) or 'accepted'": "'accepted'"},
    ),
    "end_forgotten": Mutant(
        "a remembered id that was cancelled is told as delivered",
        "tests/store/test_memory.py"
        "::test_remembered_id_answers_what_became_of_it_for_its_time[valkey-cancel-cancelled]",
        {"ENDED[string.sub(remembered, 15, 15)] or 'duplicate'": "'duplicate'"},
    ),
    "unsure_forgotten": Mutant(
        "what replaces a dead envelope that may be out is cancelled for certain",
        "tests/store/test_schedule.py"
        "::test_replace_of_a_dead_envelope_that_may_be_out_stays_unsure[valkey-cancel]",
        {"if given.is_unsure then local f": "if false then local f"},
    ),
}


def change(tree: Path, old: str, new: str, script: str) -> None:
    """Change the one file that has the text, whatever the spaces and lines in it."""
    pattern = re.compile(r"\s+".join(map(re.escape, old.split())))
    paths = (path for kind in CODE for path in tree.glob(kind) if path.name.endswith(script))
    found = [(path, text) for path in paths if pattern.search(text := path.read_text())]
    if len(found) != 1 or len(pattern.findall(found[0][1])) != 1:
        raise Stale(f"{[path.name for path, _ in found]} have {old!r}")
    [(path, text)] = found
    path.write_text(pattern.sub(lambda _: new, text))


def run(tree: Path, tests: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "pytest", "-q", "--tb=short", "-pno:cacheprovider", *tests]
    return subprocess.run(
        command, cwd=tree, env=environment(tree), capture_output=True, text=True, timeout=WITHIN_S
    )


def fault_of(name: str, mutant: Mutant, home: Path) -> str:
    """Return why the mutant does not count as caught; nothing where it does."""
    tree = home / name
    copy_tree(tree)
    try:
        for old, new in mutant.changes.items():
            change(tree, old, new, mutant.script)
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
