"""Three Kafka brokers, the first of them also the controller: the other two may be killed."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.servers import free_port, listens, wait_until

CONFIG = """\
node.id={node}
process.roles={roles}
controller.quorum.voters=1@127.0.0.1:{controller}
listeners={listeners}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={logs}
auto.create.topics.enable=false
broker.heartbeat.interval.ms=500
broker.session.timeout.ms=3000
replica.lag.time.max.ms=3000
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
num.network.threads=2
num.io.threads=2
"""
ASK = """
import kafka_server
answer = [kafka_server._java(), kafka_server.new_cluster_id()]
"""
NODES = (1, 2, 3)
FOLLOWERS = (2, 3)
STARTED_WITHIN_S = 60


def ask(checkout: Path, program: str) -> Any:
    """Return the `answer` of a program that uses the modules of deploy/local."""
    whole = f"import json, sys\nsys.path.insert(0, 'deploy/local')\n{program}\n"
    command = [sys.executable, "-c", f"{whole}print(json.dumps(answer))"]
    return json.loads(subprocess.run(command, cwd=checkout, capture_output=True, check=True).stdout)


class KafkaCluster:
    """Topics in it want two of three replicas; `close` it, or it stays."""

    def __init__(self, home: Path, checkout: Path) -> None:
        self._java, self._id = ask(checkout, ASK)
        self._home = home
        self._ports = {node: free_port() for node in NODES}
        self._controller = free_port()
        self._servers: dict[int, subprocess.Popen[bytes]] = {}
        for node in NODES:
            self._format(node)
        self.start(*NODES)

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self._ports[1]}"

    def _config(self, node: int) -> Path:
        return self._home / str(node) / "server.properties"

    def _format(self, node: int) -> None:
        config = self._config(node)
        config.parent.mkdir(parents=True)
        listeners = f"PLAINTEXT://127.0.0.1:{self._ports[node]}"
        if node == 1:
            listeners += f",CONTROLLER://127.0.0.1:{self._controller}"
        roles = "broker,controller" if node == 1 else "broker"
        ports = {"controller": self._controller, "port": self._ports[node]}
        logs = config.parent / "topics"
        text = CONFIG.format(node=node, roles=roles, listeners=listeners, logs=logs, **ports)
        config.write_text(text)
        storage = ["kafka.tools.StorageTool", "format", "-t", self._id, "-c", str(config)]
        subprocess.run([*self._java, *storage], check=True, capture_output=True)

    def start(self, *nodes: int) -> None:
        for node in nodes:
            config = self._config(node)
            with (config.parent / "server.log").open("ab") as log:
                command = [*self._java, "kafka.Kafka", str(config)]
                self._servers[node] = subprocess.Popen(command, stdout=log, stderr=log)
        for node in nodes:
            what = f"Kafka, see {self._config(node).parent}"
            wait_until(lambda node=node: listens(self._ports[node]), what, STARTED_WITHIN_S)  # type: ignore[misc]

    def kill(self, *nodes: int) -> None:
        for node in nodes:
            self._servers[node].kill()
        for node in nodes:
            self._servers[node].wait()

    def close(self) -> None:
        self.kill(*self._servers)
