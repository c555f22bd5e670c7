"""Intakes killed, stopped, in a changing group; their store, broker, dead-letter target away.

A program that knows nothing of duebridge posts everything first; the fault strikes while the
intakes, in processes of their own, take it in. So no fault here excuses a copy: whoever delivers is
left alone, and what comes again has to be told apart.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from duebridge.store.journal import Journal
from tests.faults.judgement import Look
from tests.faults.posting import INTAKE, OpenPost, StreamPost, messages, open_post
from tests.faults.rig import Rig, hold
from tests.faults.scenario import BROKERS, KAFKA, RABBITMQ, Bound, Scenario, unhurried
from tests.faults.traffic import ROUTE

TIMES = 4  # as many messages as a scenario of the worker has
MORE_TIMES = 20  # two intakes are through before anybody has looked
DUE_FROM_S, DUE_OVER_S, LATER_S = 1.0, 2.0, 40.0
BAD, GOOD = 50_000, 2_000
SOME_BAD = 200
STOPS_WITHIN_S = 15
TAKEN_IN_WITHIN_S = 90.0


class Intakes:
    """The intakes of a run: their program's queue or topic, and the processes that run them."""

    def __init__(
        self,
        rig: Rig,
        due_from_s: float,
        *,
        has_letters: bool = True,
        client: str = "",
        program: OpenPost = open_post,
    ) -> None:
        self._rig = rig
        self._due_from_s, self._posted, self._left = due_from_s, 0, 0
        given = json.loads(rig.config_path.read_text())
        self.post = program(rig.side, rig.home, given["store"])
        if has_letters:
            self.post.make_letters()
        self._config = rig.home / "intake.yaml"
        intake = {"source": self.post.source, "route": ROUTE, "dead_letter": self.post.dead_letter}
        given["intakes"] = {INTAKE: {**intake, **self.post.settings}}
        if client:
            given["brokers"]["side"]["client"] = client
        self._config.write_text(json.dumps(given))
        self.processes: list[subprocess.Popen[bytes]] = []
        store = rig.store
        self._journals = [Journal(store.connection, each.shard) for each in store.shards]
        self._looked = self._journal_ends()

    def start(self) -> "subprocess.Popen[bytes]":
        """Start one more process that runs the intake alone."""
        program = Path(sys.executable).with_name("duebridge")
        command = [program, "--config", self._config, "run", "--only", f"intake:{INTAKE}"]
        path = self._rig.home / f"worker-intake-{len(self.processes)}.log"
        with path.open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, env=os.environ)
        self.processes.append(process)
        self._rig.workers.append(process)
        return process

    def in_hand(self) -> int:
        """Return how many messages are between the program and the store; 0 if nobody can say."""
        try:
            return self.post.left()
        except Exception:  # the broker is away: it is what was broken
            return 0

    def post_more(self, good: int, bad: int = 0) -> None:
        """Post so many, due soon, and return once the broker has all of them."""
        word = f"posted-{self._posted}"
        self.post.post(messages(word, good, self._due_from_s, DUE_OVER_S), bad)
        self._posted += good + bad
        self._left = self.in_hand()

    def stand_still(self) -> None:
        """Stop the intakes when they have stored some more, and some are left; see `go_on`.

        A queue's messages leave it when an intake has them, before it has stored any.
        """
        self._rig.see(lambda: self.in_hand() < self._left and self._has_stored())
        for process in self.processes:
            if process.poll() is None:
                hold(process)
        self._left = self.in_hand()
        self._looked = self._journal_ends()
        if not self._left:  # they were through before anybody looked
            self.post_more(self._rig.count)

    def _has_stored(self) -> bool:
        """Return whether something was accepted since the last look."""
        found = zip(self._journals, self._looked, self._journal_ends(), strict=True)
        entries = (each for journal, *between in found for each in journal.read(*between))
        return any(each.kind == "accepted" for each in entries)

    def _journal_ends(self) -> list[int]:
        return [journal.last() for journal in self._journals]

    def go_on(self) -> None:
        """Let the intakes that still run go on."""
        for process in self.processes:
            process.send_signal(signal.SIGCONT)

    def finish(self) -> None:
        """Return once all was taken in and settled: a stop gives back what an intake still has."""
        give_up_at = time.monotonic() + TAKEN_IN_WITHIN_S
        while time.monotonic() < give_up_at:
            self._rig.see(self._is_empty, TAKEN_IN_WITHIN_S)
            for process in self.processes:
                self._rig.seconds_to_leave(process)
            if self._is_empty():
                return
            self.start()

    def _is_empty(self) -> bool:
        try:
            return self.post.left() == 0
        except Exception:  # as above
            return False


@contextmanager
def taking_in(
    rig: Rig,
    *,
    intakes: int = 1,
    times: int = TIMES,
    bad: int = 0,
    has_letters: bool = True,
    due_from_s: float = DUE_FROM_S,
    client: str = "",
    program: OpenPost = open_post,
) -> Iterator[Intakes]:
    """Post everything and have intakes take it in; the block breaks something meanwhile."""
    opened = Intakes(rig, due_from_s, has_letters=has_letters, client=client, program=program)
    rig.in_hand = opened.in_hand
    try:
        opened.post_more(times * rig.count, bad)
        rig.see(lambda: opened.in_hand() == times * rig.count + bad)
        for _ in range(intakes):
            opened.start()
        yield opened
        opened.go_on()
        opened.finish()
        rig.in_hand = None
        rig.see(rig.is_empty)
    finally:
        rig.in_hand = None
        opened.post.close()


def _all_came(opened: Intakes, refused: int = 0, found: int = 0) -> Look:
    not_sent_on = Bound("refused, not sent on", refused - found, 0)
    return lambda seen: [seen.missing(opened.post.ids, called="posted"), not_sent_on]


def kill(rig: Rig, intakes: int = 1, client: str = "", program: OpenPost = open_post) -> Look:
    """Kill one amid a batch; with two of a group or queue the other goes on beside a new one."""
    times = TIMES if intakes == 1 else MORE_TIMES
    with taking_in(rig, intakes=intakes, times=times, client=client, program=program) as opened:
        for turn in range(2):
            opened.stand_still()
            with rig.fault(f"intake killed, one of {intakes}") as fault:
                victim = opened.processes[turn]
                victim.kill()
                fault.effect = f"exit {victim.wait()}, {opened.in_hand()} left"
                opened.start()
            opened.go_on()
    return _all_came(opened)


def terminate(rig: Rig) -> Look:
    """Stop one amid a batch, in order: it ends in time, with 0."""
    with taking_in(rig) as opened:
        opened.stand_still()
        with rig.fault("intake stopped by SIGTERM") as fault:
            victim = opened.processes[0]
            opened.go_on()
            took_s = rig.seconds_to_leave(victim)
            if victim.wait() == 0:
                fault.effect = "drained, exit 0"
        rig.bounds.append(Bound("exit of the intake by SIGTERM, s", took_s, STOPS_WITHIN_S))
        opened.start()
    return _all_came(opened)


def lose(
    service: str, number: signal.Signals, event: str, rig: Rig, program: OpenPost = open_post
) -> Look:
    """Take a server away amid a batch, and bring it back."""
    # Due later, so that nothing is being delivered.
    with taking_in(rig, intakes=2, due_from_s=LATER_S, program=program) as opened:
        opened.stand_still()
        with rig.fault(f"{service} stopped by {number.name}") as fault:
            rig.stack.signal(service, number)
            opened.go_on()
            rig.see_logged(fault, event)
            rig.stack.up(service)
    return _all_came(opened)


def lose_broker(rig: Rig) -> Look:
    return lose(rig.side.service, signal.SIGKILL, '"intake_source_unavailable"', rig)


def refuse_many(rig: Rig) -> Look:
    """Kill an intake amid 50,000 bad messages beside good ones: each bad one ends refused."""
    with taking_in(rig, intakes=2, bad=BAD) as opened:
        opened.stand_still()
        with rig.fault("intake killed amid bad messages") as fault:
            opened.processes[0].kill()
            fault.effect = f"exit {opened.processes[0].wait()}, {opened.in_hand()} left"
        opened.go_on()
        opened.finish()
        found = opened.post.refused()
    return _all_came(opened, BAD, found)


def miss_letters(rig: Rig) -> Look:
    """Have bad messages before their dead-letter target is there: their batch waits for it."""
    with taking_in(rig, bad=SOME_BAD, has_letters=False) as opened:
        with rig.fault("dead-letter target of the intake missing") as fault:
            held = '"intake_letters_held"'
            rig.take(fault, f"logged {held}", lambda: rig.logged(held) > 0)
            opened.post.make_letters()
        opened.finish()
        found = opened.post.refused()
    return _all_came(opened, SOME_BAD, found)


Inject = Callable[[Rig], Look]


def _row(name: str, inject: Inject, faults: int = 1, brokers: Sequence[str] = BROKERS) -> Scenario:
    sure = {"may_repeat": False, "may_count": False, "arrange": unhurried}
    return Scenario(name, inject, faults, workers=1, over_s=0, brokers=brokers, **sure)


SCENARIOS = [
    _row("intake_killed", kill, 2),
    _row("intake_of_two_killed", partial(kill, intakes=2), 2),
    _row(
        "intake_of_librdkafka_killed",
        partial(kill, intakes=2, client="librdkafka"),
        2,
        KAFKA,
    ),
    _row("intake_terminated", terminate),
    _row(
        "intake_store_killed",
        partial(lose, "redis", signal.SIGKILL, '"intake_store_unavailable"'),
    ),
    _row("intake_broker_killed", lose_broker),
    _row("intake_of_stream_killed", partial(kill, program=StreamPost), 2, RABBITMQ),
    _row(
        "intake_of_stream_store_killed",
        partial(lose, "redis", signal.SIGKILL, '"intake_store_unavailable"', program=StreamPost),
        brokers=RABBITMQ,
    ),
    _row("intake_refuses_many", refuse_many),
    _row("intake_letters_missing", miss_letters),
]
