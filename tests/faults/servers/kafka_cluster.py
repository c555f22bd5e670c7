"""Two Kafka brokers, the first of them also the controller: the other one may be killed."""

from pathlib import Path

from tests.support.checkout import ask
from tests.support.kafka.own_kafka import ASK, KafkaNode
from tests.support.servers import free_port

CONFIG = """\
node.id={node}
process.roles={roles}
controller.quorum.voters=1@127.0.0.1:{controller}
listeners={listeners}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={home}/topics
auto.create.topics.enable=false
broker.heartbeat.interval.ms=500
broker.session.timeout.ms=3000
replica.lag.time.max.ms=3000
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
num.network.threads=2
num.io.threads=2
"""
FIRST, FOLLOWER = 1, 2
NODES = (FIRST, FOLLOWER)


class KafkaCluster:
    """Topics in it want both replicas; `close` it, or it stays."""

    def __init__(self, home: Path, checkout: Path) -> None:
        java, cluster = ask(checkout, ASK)
        ports = {node: free_port() for node in NODES}
        controller = free_port()
        self.bootstrap = f"127.0.0.1:{ports[FIRST]}"
        self._nodes = {}
        for node, port in ports.items():
            place = home / str(node)
            place.mkdir(parents=True)
            roles, listeners = "broker", f"PLAINTEXT://127.0.0.1:{port}"
            if node == FIRST:
                roles += ",controller"
                listeners += f",CONTROLLER://127.0.0.1:{controller}"
            given = {"node": node, "roles": roles, "listeners": listeners, "home": place}
            config = CONFIG.format(port=port, controller=controller, **given)
            self._nodes[node] = KafkaNode(place, config, (port,), java, cluster)
        self.start(*NODES)

    def start(self, *nodes: int) -> None:
        for node in nodes:
            self._nodes[node].start()
        for node in nodes:
            self._nodes[node].wait()

    def kill(self, *nodes: int) -> None:
        for node in nodes:
            self._nodes[node].kill()

    def close(self) -> None:
        self.kill(*NODES)
