"""Seeded bugs against the guarantee: each must turn the test red that it names.

python -m tests.faults.mutants [NAME ...]

Each bug is put into a copy of the checkout, and its test runs there. Python is changed by its
syntax tree, Lua by a text in which spaces do not count; files are found by what they define.
"""

import ast
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.support.checkout import copy_tree, environment

WITHIN_S = 300
PACKAGES = ("bridge", "connectors")


class Stale(Exception):
    """The code that a mutant changes is not there, or is there twice."""


class Change(NamedTuple):
    """Code that is replaced, everywhere in a Python function or once in the Lua scripts."""

    old: str
    new: str
    function: str = ""  # of Python; without one it is Lua
    script: str = ""  # the file of a text that several have


class Mutant(NamedTuple):
    """A bug that somebody could write, and the test that must fail with it."""

    bug: str
    test: str
    changes: Sequence[Change]


MUTANTS = {
    "acked_before_the_confirm": Mutant(
        "a batch is acked before it is published",
        "tests/acceptance/test_worker_delivery.py"
        "::test_retry_after_failure_waits_for_the_backoff_and_counts",
        [
            Change(
                "outcomes = self._publish(batch)",
                "view.store.ack(claim.token, claim.ids); outcomes = self._publish(batch)",
                "deliver",
            )
        ],
    ),
    "doubt_taken_for_a_confirm": Mutant(
        "a delivery that nobody answered is acked",
        "tests/acceptance/test_worker_delivery.py"
        "::test_indeterminate_alone_counts_no_failure_but_is_unsure",
        [
            Change(
                "return _retry(leased, outcome, route, is_failure=counts, is_unsure=True)",
                "return Ack(leased.id)",
                "decide",
            )
        ],
    ),
    "outage_burns_a_retry": Mutant(
        "a broker that is away counts as a failure of each envelope",
        "tests/acceptance/test_worker_delivery.py"
        "::test_unavailable_releases_and_stops_the_lane_until_it_answers",
        [
            Change(
                "return Release(leased.id)",
                "return _retry(leased, outcome, route, is_failure=True, is_unsure=False)",
                "decide",
            )
        ],
    ),
    "dead_letter_acked_unconfirmed": Mutant(
        "a dead letter leaves the store though its target did not confirm it",
        "tests/acceptance/test_worker_delivery.py"
        "::test_keep_dead_letter_that_cannot_be_sent_until_it_can",
        [
            Change(
                "outcome.verdict is Verdict.CONFIRMED",
                "outcome.verdict is not Verdict.UNAVAILABLE",
                "_send",
            )
        ],
    ),
    "publish_beyond_the_lease": Mutant(
        "a batch is published with too little of its lease left",
        "tests/acceptance/test_worker_delivery.py"
        "::test_publish_with_too_little_lease_left_is_not_begun",
        [Change("self._monotonic() > batch.must_start_by", "False", "_publish")],
    ),
    "claim_repeated": Mutant(
        "a claim whose reply was lost is made again: two leases, one of them nobody's",
        "tests/store/test_lost_replies.py::test_claim_is_never_repeated[standalone]",
        [Change("self._run_once", "self._run", "claim")],
    ),
    "mandatory_dropped": Mutant(
        "RabbitMQ is not asked to give back what no queue takes, and confirms it",
        "tests/contract/test_rabbitmq_batches.py"
        "::test_publish_unroutable_among_routable_fails_those_alone",
        [
            Change(
                "spec.Basic.Publish(exchange=exchange, routing_key=routing_key, mandatory=True)",
                "spec.Basic.Publish(exchange=exchange, routing_key=routing_key, mandatory=False)",
                "publish_payload",
            )
        ],
    ),
    "unroutable_confirmed": Mutant(
        "a message that RabbitMQ gave back counts as confirmed by the ack that follows",
        "tests/contract/test_rabbitmq_batches.py"
        "::test_publish_unroutable_among_routable_fails_those_alone",
        [Change("self.returned or outcome", "outcome", "settle")],
    ),
    "token_unchecked": Mutant(
        "a late worker settles what another holds",
        "tests/store/test_settling.py"
        "::test_settle_after_the_lease_went_to_another_leaves_that_one_alone[valkey-ack]",
        [Change("token ~= NOBODY and string.sub(packed, 1, 12) == token and", "")],
    ),
    "source_before_destination": Mutant(
        "a claim leaves ready before the lease is written: a failure between loses it",
        "tests/store/test_halfway.py::test_move_that_fails_halfway_loses_no_envelope[claim]",
        [
            Change(
                "redis.call('ZREMRANGEBYRANK', source, 0, #ids - 1)\nreturn",
                "return",
                script="claim",
            ),
            Change(
                "hset_as_table(FLIGHT, packed)\nzadd(UNACK, unack)",
                "redis.call('ZREMRANGEBYRANK', source, 0, #ids - 1)\n"
                "hset_as_table(FLIGHT, packed)\nzadd(UNACK, unack)",
                script="claim",
            ),
        ],
    ),
    "write_error_swallowed": Mutant(
        "a write that the server refuses is passed over, and the source removed all the same",
        "tests/store/test_halfway.py::test_move_that_fails_halfway_loses_no_envelope[promote]",
        [Change("redis.call('ZADD', key, unpack(", "redis.pcall('ZADD', key, unpack(")],
    ),
    "call_id_forgotten": Mutant(
        "a cancel whose reply was lost is done again, and answers another word than it did",
        "tests/store/test_cancel.py"
        "::test_cancel_repeated_under_its_call_id_answers_as_it_did[valkey-pending]",
        [Change("if before then return {NOW, before} end", "", script="cancel")],
    ),
    "cancel_under_a_lease": Mutant(
        "a cancel removes what a worker holds, and answers that it is certain",
        "tests/store/test_cancel.py"
        "::test_cancel_in_unack_leaves_a_mark_and_changes_no_lease[valkey]",
        [Change("if state == 'unack' then", "if state == 'never' then", script="cancel")],
    ),
    "due_in_whole_seconds": Mutant(
        "a due instant is cut to whole seconds: up to a second early",
        "tests/store/test_clock.py"
        "::test_due_in_whole_seconds_fires_no_part_of_a_second_early[valkey]",
        [
            Change(
                "return NOW_UP + tonumber(string.sub(given, 2))",
                "return math.floor((NOW_UP + tonumber(string.sub(given, 2))) / 1000) * 1000",
            )
        ],
    ),
    "tombstone_ignored": Mutant(
        "a row of the cold tier comes back although it was cancelled",
        "tests/store/test_memory.py::test_cancel_of_a_cold_row_is_recorded_and_binds_it[valkey]",
        [Change("given.generation > 0 and judge_cold(given) or 'accepted'", "'accepted'")],
    ),
}


class Rewriter(ast.NodeTransformer):
    """Replaces an expression, or a statement by others, inside the functions of one name."""

    def __init__(self, change: Change) -> None:
        self._function = change.function
        old, self._new = ast.parse(change.old).body[0], ast.parse(change.new).body
        self._is_expression = isinstance(old, ast.Expr)
        self._old = ast.dump(old.value if isinstance(old, ast.Expr) else old)
        self._depth = 0
        self.count = 0

    def visit(self, node: ast.AST) -> ast.AST | list[ast.stmt]:  # type: ignore[override]
        is_function = isinstance(node, ast.FunctionDef) and node.name == self._function
        self._depth += is_function
        if self._depth and ast.dump(node) == self._old:
            self.count += 1
            [first] = self._new if self._is_expression else [None]
            return first.value if isinstance(first, ast.Expr) else self._new
        found = self.generic_visit(node)
        self._depth -= is_function
        return found


def python_files(tree: Path) -> Iterator[Path]:
    for package in PACKAGES:
        yield from (tree / package).rglob("*.py")


def change_python(tree: Path, change: Change) -> None:
    counts = 0
    for path in python_files(tree):
        if f"def {change.function}(" not in (text := path.read_text()):
            continue
        module, rewriter = ast.parse(text), Rewriter(change)
        rewriter.visit(module)
        if rewriter.count:
            path.write_text(ast.unparse(ast.fix_missing_locations(module)) + "\n")
        counts += rewriter.count
    if counts != 1:
        raise Stale(f"{change.function} has {counts} of {change.old!r}")


def change_lua(tree: Path, change: Change) -> None:
    """Change the one script that has the text, whatever the spaces and lines in it."""
    pattern = re.compile(r"\s+".join(map(re.escape, change.old.split())))
    scripts = (tree / "lua").rglob(f"{change.script or '*'}.lua")
    found = [(path, text) for path in scripts if pattern.search(text := path.read_text())]
    if len(found) != 1 or len(pattern.findall(found[0][1])) != 1:
        raise Stale(f"{[path.name for path, _ in found]} have {change.old!r}")
    [(path, text)] = found
    path.write_text(pattern.sub(lambda _: change.new, text))


def apply(tree: Path, mutant: Mutant) -> None:
    for change in mutant.changes:
        (change_python if change.function else change_lua)(tree, change)


def run(tree: Path, tests: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    words = [sys.executable, "-m", "pytest", "-q", "--tb=short", "-pno:cacheprovider", *tests]
    return subprocess.run(
        words,
        cwd=tree,
        env=environment(tree),
        capture_output=True,
        text=True,
        check=False,
        timeout=WITHIN_S,
    )


def fault_of(name: str, mutant: Mutant, home: Path) -> str:
    """Return why the mutant does not count as caught; nothing where it does."""
    tree = home / name
    copy_tree(tree)
    apply(tree, mutant)
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
            try:
                fault = fault_of(name, mutant, Path(made))
            except Stale as error:
                fault = str(error)
            survivors += bool(fault)
            print(f"{'SURVIVES' if fault else 'caught'}  {name}: {mutant.bug} {fault}")  # noqa: T201
    return int(survivors > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
