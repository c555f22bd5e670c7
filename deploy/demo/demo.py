"""`make demo`: a day of departures from New York waits in a delay store, comes due and arrives.

Two workers move it to Kafka and RabbitMQ, one of them is killed, and in the end every message is
read back and judged. Whatever happens, nothing is left behind.
"""

import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from duebridge.producer import Producer
from duebridge.store.embedded import stop_embedded
from rich.console import Console

from crew import Crew
from departures import DAY_NAME, read_departures
from local_services import local_services
from report import BROKEN, conclusion, exit_code, verdict_table
from show import DAY_S, Show
from stage import opened_stage
from store_view import StoreView

WORKERS = 2
INTERRUPTED = 130


def main() -> int:
    """Run the demo; returns 0 where the guarantee held, 1 where it did not, 130 after Ctrl-C."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    console = Console(highlight=False)
    try:
        with ExitStack() as stack:
            try:
                return play(console, stack)
            finally:
                clean_up_undisturbed(console)
    except KeyboardInterrupt:
        return INTERRUPTED
    except subprocess.CalledProcessError:
        console.print("Kafka and RabbitMQ could not be started; why is said above.")
        return BROKEN


def play(console: Console, stack: ExitStack) -> int:
    """Tell the whole story; what must be taken away at its end is on the stack."""
    departures = read_departures()
    console.print(f"{len(departures)} departures from New York on {DAY_NAME}, in {DAY_S:.0f} s.")
    stage = stack.enter_context(opened_stage(*stack.enter_context(local_services())))
    home = stack.enter_context(TemporaryDirectory(prefix="duebridge-demo-"))
    stack.callback(stop_embedded, f"{home}/store")
    config = Path(home, "duebridge.yaml")
    config.write_text(stage.config(home))

    producer = stack.enter_context(Producer.from_config(config))
    view = stack.enter_context(StoreView.opened(config))
    crew = Crew(config)
    stack.callback(crew.stop)
    crew.start(WORKERS)
    console.print(f"{WORKERS} workers run. One of them will be killed.\n")

    show = Show(console, stage, producer, view, crew, departures)
    show.schedule()
    show.perform()
    crew.stop()
    verdicts = show.verdicts()
    console.print(verdict_table(verdicts))
    is_broken = exit_code(verdicts) == BROKEN
    style = "bold red" if is_broken else "bold green"
    console.print(conclusion(verdicts), style=style, soft_wrap=True)
    if is_broken:
        console.print(f"What the workers said: {crew.keep_logs()}", soft_wrap=True)
    return exit_code(verdicts)


def clean_up_undisturbed(console: Console) -> None:
    """Let no second Ctrl-C leave anything behind of what is now taken away."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    console.print("Cleaning up: workers, delay store, topics, queue.")


if __name__ == "__main__":
    sys.exit(main())
