"""`make demo KEEP=1`: after the verdict the bridge goes on, with its console, until Ctrl-C.

The same day comes again from now on, at its own pace; and the calls of one route wait for a topic
that nobody made, so that there is a held target to look at.
"""

import signal
import socket
import subprocess
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from urllib.request import urlopen

from duebridge.envelope import Envelope
from duebridge.producer import Producer
from rich.console import Console

from crew import Crew, duebridge
from departures import HELD_ROUTE, SCHEDULED_ROUTES, Departure, Timetable, envelope_of

PORT = 8480
STARTED_WITHIN_S = 30.0
STOP_WITHIN_S = 10.0
PAUSE_S = 0.1
FIRST_IN_S = 60.0
BUSY_FROM_MIN = 5 * 60 + 30
GATE_CALLS = 12


def keep(
    console: Console,
    config: Path,
    producer: Producer,
    departures: Sequence[Departure],
    workers: int,
) -> None:
    """Have workers and the console run until Ctrl-C; nothing of it outlives that."""
    address = f"127.0.0.1:{_free_port()}"
    config.write_text(f"{config.read_text()}serve: {{listen: '{address}'}}\n")
    calls = _schedule(producer, departures)
    with ExitStack() as stack:
        crew = Crew(config)
        stack.callback(crew.stop)
        crew.start(workers)
        _serve(stack, config, address)
        console.print(
            f"\nThe day goes on at its own pace: {len(calls)} calls wait, {calls[-1]} is one.\n"
            f"{HELD_ROUTE} is held: nobody made its topic.\n"
            f"[bold]The console: http://{address}/[/bold]   Ctrl-C ends it all.",
            soft_wrap=True,
        )
        with suppress(KeyboardInterrupt):
            signal.pause()


def _schedule(producer: Producer, departures: Sequence[Departure]) -> list[str]:
    """Schedule the calls of the next hours, and some for a topic that is missing; return ids."""
    later = [each for each in departures if each.boarding_min >= BUSY_FROM_MIN]
    length_s = 60.0 * (later[-1].boarding_min - later[0].boarding_min)
    timetable = Timetable.of(later, int((time.time() + FIRST_IN_S) * 1000), length_s)
    by_route = attrgetter("route")
    wanted = sorted((each for each in later if each.route in SCHEDULED_ROUTES), key=by_route)
    ids: list[str] = []
    for route, some in groupby(wanted, key=by_route):
        receipts = producer.schedule_many(
            route, (envelope_of(each, timetable) for each in some), on_conflict="replace"
        )
        ids += [each.id for each in receipts]
    producer.schedule_many(HELD_ROUTE, _gate_calls(departures))
    return ids


def _gate_calls(departures: Iterable[Departure]) -> list[Envelope]:
    calls = [each for each in departures if each.delay_min is not None][:GATE_CALLS]
    return [Envelope.new(b"gate changed", delay="1s", id=f"gate-of-{each.id}") for each in calls]


def _serve(stack: ExitStack, config: Path, address: str) -> None:
    """Start the console; raises `RuntimeError` where it does not answer."""
    with config.with_name("serve.log").open("wb") as log:
        process = subprocess.Popen(
            [*duebridge(config), "serve"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    stack.callback(_stop, process)
    give_up_at = time.monotonic() + STARTED_WITHIN_S
    while process.poll() is None and time.monotonic() < give_up_at:
        with suppress(OSError), urlopen(f"http://{address}/livez", timeout=1):
            return
        time.sleep(PAUSE_S)
    raise RuntimeError(f"the console did not start: {config.with_name('serve.log').read_text()}")


def _stop(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(STOP_WITHIN_S)
    process.kill()
    process.wait()


def _free_port() -> int:
    """Return the usual port, or a free one where that is taken."""
    for port in (PORT, 0):
        with suppress(OSError), socket.socket() as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tried.bind(("127.0.0.1", port))
            return int(tried.getsockname()[1])
    raise RuntimeError("no port is free")
