"""`make demo`: a day of departures from New York waits in a delay store, comes due and arrives.

A part of it comes through the intakes, from programs that know the brokers alone. Two workers move
it to Kafka and RabbitMQ, one of them is killed, and in the end every message is read back and
judged. Whatever happens, nothing is left behind; with KEEP=1 the bridge runs on until Ctrl-C.
"""

import os
import sys
from contextlib import ExitStack, closing
from pathlib import Path
from tempfile import TemporaryDirectory

from duebridge.producer import Producer
from duebridge.store.server.embedded import stop_embedded
from rich.console import Console

from crew import Crew, StoreView
from departures import DAY_NAME, read_departures
from keep import keep
from ledger import conclusion, holds, verdict_table
from show import DAY_S, Show
from stage import local_brokers, opened_stage, performed

WORKERS = 2


def play(console: Console, stack: ExitStack) -> bool:
    """Tell the whole story; what must be taken away at its end is on the stack."""
    departures = read_departures()
    console.print(f"{len(departures)} departures from New York on {DAY_NAME}, in {DAY_S:.0f} s.")
    brokers = stack.enter_context(local_brokers("kafka", "rabbitmq"))
    stage = stack.enter_context(opened_stage(*brokers))
    home = stack.enter_context(TemporaryDirectory(prefix="duebridge-demo-"))
    stack.callback(stop_embedded, f"{home}/store")
    config = Path(home, "duebridge.yaml")
    config.write_text(stage.config(home))

    producer = stack.enter_context(Producer.from_config(config))
    view = stack.enter_context(closing(StoreView(config)))
    crew = Crew(config)
    stack.callback(crew.stop)
    crew.start(WORKERS)
    console.print(f"{WORKERS} workers run. One of them will be killed.\n")

    programs = stage.programs()
    for program in programs.values():
        stack.callback(program.stop)
    show = Show(console, stage, producer, view, crew, departures, programs)
    show.schedule()
    show.perform()
    crew.stop()
    verdicts = show.verdicts()
    console.print(verdict_table(verdicts))
    has_held = holds(verdicts)
    style = "bold green" if has_held else "bold red"
    console.print(conclusion(verdicts), style=style, soft_wrap=True)
    if not has_held:
        console.print(f"What the workers said: {crew.keep_logs()}", soft_wrap=True)
    if os.environ.get("KEEP"):
        keep(console, config, producer, departures, WORKERS)
    return has_held


if __name__ == "__main__":
    sys.exit(performed(play, "Cleaning up: workers, delay store, topics, queue."))
