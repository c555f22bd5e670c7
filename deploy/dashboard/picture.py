"""The picture in docs/: two workers under load, both brokers, and three things that go wrong.

    make services-up && eval "$(python3 deploy/local/services.py env)"
    .venv/bin/python -m deploy.dashboard.picture docs/dashboard.png

A burst that was scheduled for one instant, a worker killed, an exchange deleted: three minutes,
seen by a real Prometheus, drawn from the dashboard's own queries, photographed by Chromium.
"""

import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import uniform

import pika
from kafka.admin import KafkaAdminClient

from deploy.dashboard.render import render
from deploy.dashboard.server import free_port, prometheus
from duebridge import Envelope, Producer

SECONDS = 180
PER_SECOND = {"order-timeout": 300, "invoice-dunning": 100}
BURST = 20_000
SIZE = "1600,970"

CONFIG = """\
version: 1
store: {{url: "{redis}", namespace: {name}}}
brokers:
  orders: {{type: kafka, bootstrap_servers: ["{kafka}"]}}
  billing: {{type: rabbitmq, url: "{rabbitmq}"}}
worker: {{publish_deadline: 4s}}
defaults: {{lease: 8s, retry: {{initial: 500ms, jitter: none}}}}
routes:
  order-timeout: {{target: {{broker: orders, topic: {name}}}}}
  invoice-dunning: {{target: {{broker: billing, exchange: {name}, routing_key: due}}}}
"""


class Stage:
    """A topic and an exchange of its own on real brokers, and the configuration that names them."""

    def __init__(self, folder: Path) -> None:
        self.name = f"picture-{secrets.token_hex(4)}"
        self.config = folder / "duebridge.yaml"
        kafka = os.environ["DUEBRIDGE_TEST_KAFKA_BOOTSTRAP"]
        self._url = os.environ["DUEBRIDGE_TEST_RABBITMQ_URL"]
        redis = os.environ["DUEBRIDGE_TEST_REDIS_URL"]
        self.config.write_text(
            CONFIG.format(redis=redis, kafka=kafka, rabbitmq=self._url, name=self.name)
        )
        self._admin = KafkaAdminClient(bootstrap_servers=kafka)
        self._admin.create_topics([self.name])
        self.make_exchange()

    def make_exchange(self) -> None:
        """Make the exchange, and a queue that takes what it gets."""
        with self._rabbitmq() as channel:
            channel.exchange_declare(self.name, "fanout")
            channel.queue_declare(self.name, arguments={"x-max-length": 1000})
            channel.queue_bind(self.name, self.name)

    def delete_exchange(self) -> None:
        """Take it away: the route is held until it is back."""
        with self._rabbitmq() as channel:
            channel.exchange_delete(self.name)

    def clear(self) -> None:
        """Remove topic, exchange and queue."""
        self._admin.delete_topics([self.name])
        self._admin.close()
        with self._rabbitmq() as channel:
            channel.exchange_delete(self.name)
            channel.queue_delete(self.name)

    @contextmanager
    def _rabbitmq(self) -> Iterator["pika.adapters.blocking_connection.BlockingChannel"]:
        connection = pika.BlockingConnection(pika.URLParameters(self._url))
        yield connection.channel()
        connection.close()


class Workers:
    """Worker processes, each on a port that it keeps when it is started anew."""

    def __init__(self, config: Path, count: int, log: Path) -> None:
        self._config = config
        self._log = log.open("w")
        self.ports = [free_port() for _ in range(count)]
        self._processes = [self._start(port) for port in self.ports]

    def kill(self, number: int) -> None:
        """End one at once: its leases run out."""
        self._processes[number].kill()

    def restart(self, number: int) -> None:
        """Start it anew."""
        self._processes[number] = self._start(self.ports[number])

    def end(self) -> None:
        """Drain them all."""
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.wait()
        self._log.close()

    def _start(self, port: int) -> "subprocess.Popen[bytes]":
        program = Path(sys.executable).with_name("duebridge")
        command = [program, "--config", self._config, "run", "--health-port", str(port)]
        return subprocess.Popen(command, stderr=self._log)


def schedule(producer: Producer, stop: threading.Event) -> None:
    """Schedule at a steady rate, a second's worth at a time, due within half a minute."""
    while not stop.wait(1.0):
        for route, count in PER_SECOND.items():
            delays = [f"{round(uniform(1000, 30_000))}ms" for _ in range(count)]  # noqa: S311
            list(producer.schedule_many(route, [Envelope.new(b"due", delay=at) for at in delays]))


def burst(producer: Producer) -> None:
    """Schedule many for one instant, half a minute ahead."""
    at_ms = round(time.time() * 1000) + 30_000
    envelopes = (Envelope.new(b"due", at=at_ms) for _ in range(BURST))
    list(producer.schedule_stream("order-timeout", envelopes))


def story(
    stage: Stage, workers: Workers, producer: Producer
) -> Iterator[tuple[float, str, Callable[[], None]]]:
    """Yield what happens, and after how many seconds."""
    yield 30, f"{BURST} are scheduled for one instant", lambda: burst(producer)
    yield 60.5, "they are due; a worker is killed", lambda: workers.kill(1)
    yield 75, "it is back", lambda: workers.restart(1)
    yield 125, "the exchange is deleted", stage.delete_exchange
    yield 150, "it is back", stage.make_exchange


def photograph(page: Path, picture: Path) -> None:
    """Make a picture of a page, with Chromium."""
    program = shutil.which("chromium") or shutil.which("google-chrome") or sys.exit("no Chromium")
    shot = ["--headless", "--no-sandbox", "--hide-scrollbars", f"--window-size={SIZE}"]
    command = [program, *shot, f"--screenshot={picture.resolve()}", f"file://{page.resolve()}"]
    subprocess.run(command, check=True, capture_output=True)


def take(folder: Path, picture: Path) -> None:
    """Play the story, and take its picture."""
    with ExitStack() as stack:
        stage = Stage(folder)
        stack.callback(stage.clear)
        workers = Workers(stage.config, 2, folder / "workers.log")
        stack.callback(workers.end)
        producer = stack.enter_context(Producer.from_config(stage.config))
        stop = threading.Event()
        load = threading.Thread(target=schedule, args=(producer, stop))
        load.start()
        stack.callback(load.join)
        stack.callback(stop.set)
        program = shutil.which("prometheus") or sys.exit("no prometheus: run `make tools`")
        targets = [f"127.0.0.1:{port}" for port in workers.ports]
        source = stack.enter_context(prometheus(program, folder, targets))
        began, began_s = time.time(), time.monotonic()
        for after_s, what, do in story(stage, workers, producer):
            time.sleep(max(0.0, began_s + after_s - time.monotonic()))
            print(f"{after_s:>5} s  {what}", flush=True)
            do()
        time.sleep(max(0.0, began_s + SECONDS - time.monotonic()))
        page = folder / "dashboard.html"
        page.write_text(render(source, began, time.time()))
    photograph(page, picture)


def main(words: Sequence[str]) -> None:
    """Run the command line."""
    if len(words) != 1:
        sys.exit("usage: python -m deploy.dashboard.picture OUT.png")
    with tempfile.TemporaryDirectory() as folder:
        take(Path(folder), Path(words[0]))


if __name__ == "__main__":
    main(sys.argv[1:])
