"""Redis, Kafka and RabbitMQ of this run alone, as deploy/local starts them, and the links to them.

Kafka has two lines more: an authorizer that denies nothing by itself, and a second listener whose
clients are told to come by the link. Servers ignore SIGXFSZ, as Python does: a file that may not
grow is then an error of the write, like a full disk.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import redis

from tests.faults.servers.kafka_cluster import KafkaCluster
from tests.faults.servers.proxy import Link
from tests.support.checkout import ROOT
from tests.support.network.relays import RelayThread
from tests.support.rabbitmq.own_rabbitmq import rabbitmqctl
from tests.support.servers import COMPILES_ONCE, free_port

PATIENCE_S = 60.0
NAMES = ("redis", "kafka", "rabbitmq")
LISTENERS = "listeners=PLAINTEXT://{host}:{port},"
ADVERTISED = "advertised.listeners=PLAINTEXT://{host}:{port}\n"
PROTOCOLS = "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,"
JVM = '"-XX:+UseSerialGC",'
SPAWN = "            start_new_session=True,\n"
AUTHORIZER = """\
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
allow.everyone.if.no.acl.found=true
"""


class Stack:
    """The three services, each of which may be killed, frozen and started again."""

    def __init__(self, home: Path) -> None:
        self.home = home.resolve()
        shutil.copytree(ROOT / "deploy" / "local", self.home / "deploy" / "local")
        self._relays = RelayThread()
        self._listener_port = free_port()
        self.links = {"kafka": Link(self._relays, self._listener_port)}
        self._change_kafka(self.links["kafka"].port)
        self._change("process.py", SPAWN, f"{SPAWN}            restore_signals=False,\n")
        self.up(*NAMES)
        for name, service in (("store", "redis"), ("producer", "redis"), ("rabbitmq", "rabbitmq")):
            self.links[name] = Link(self._relays, self.state(service)["port"])

    def _change_kafka(self, link_port: int) -> None:
        linked = f"LINKED://{{host}}:{self._listener_port}"
        for line, more in (
            (LISTENERS, f"{LISTENERS}{linked},"),
            (ADVERTISED, f"{ADVERTISED.rstrip()},LINKED://{{host}}:{link_port}\n{AUTHORIZER}"),
            (PROTOCOLS, f"{PROTOCOLS}LINKED:PLAINTEXT,"),
            (JVM, f'{JVM} "{COMPILES_ONCE}",'),
        ):
            self._change("kafka_server.py", line, more)

    def _change(self, name: str, line: str, more: str) -> None:
        program = self.home / "deploy" / "local" / name
        text = program.read_text()
        assert line in text, f"{name}: expected {line!r}"
        program.write_text(text.replace(line, more))

    def up(self, *names: str) -> None:
        self._call("up", "--only", ",".join(names))

    @cached_property
    def cluster(self) -> KafkaCluster:
        """Two more Kafka brokers, from the first scenario that needs them on."""
        return KafkaCluster(self.home / "cluster", self.home)

    def close(self) -> None:
        if "cluster" in vars(self):
            self.cluster.close()
        self._relays.close()
        self._call("down")

    def _call(self, *arguments: str) -> None:
        program = self.home / "deploy" / "local" / "services.py"
        subprocess.run([sys.executable, str(program), *arguments], check=True, capture_output=True)

    def state(self, name: str) -> dict[str, Any]:
        found = json.loads((self.home / ".services" / "services.json").read_text())[name]
        assert isinstance(found, dict)
        return found

    def data(self, name: str) -> Path:
        return self.home / ".services" / name

    def store_url(self, link: str = "") -> str:
        port = self.links[link].port if link else self.state("redis")["port"]
        return f"redis://127.0.0.1:{port}/0"

    def kafka_bootstrap(self, *, linked: bool = False) -> str:
        return f"127.0.0.1:{self.links['kafka'].port if linked else self.state('kafka')['port']}"

    def rabbitmq_url(self, *, linked: bool = False) -> str:
        url = str(self.state("rabbitmq")["url"])
        link = f":{self.links['rabbitmq'].port}/"
        return url.replace(f":{urlsplit(url).port}/", link) if linked else url

    def rabbitmqctl(self, *command: str) -> None:
        rabbitmqctl(self.home, *command)

    def signal(self, name: str, number: signal.Signals) -> None:
        """Signal a server. Redis first writes down what it answered: what it accepts while it syncs
        its file is lost with its process (docs/durability.md), which is no fault of ours.
        """
        if (name, number) == ("redis", signal.SIGKILL):
            with redis.Redis.from_url(self.store_url(), socket_timeout=PATIENCE_S) as client:
                client.config_set("appendfsync", "always")
        os.kill(self.state(name)["pid"], number)

    @contextmanager
    def frozen(self, name: str) -> Iterator[None]:
        self.signal(name, signal.SIGSTOP)
        try:
            yield
        finally:
            self.signal(name, signal.SIGCONT)
