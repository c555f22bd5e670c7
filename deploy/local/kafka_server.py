"""Apache Kafka in KRaft mode, broker and controller in one process, from Maven's jars."""

import secrets

import downloads
import packages
from process import spawn
from state import HOST, Place, Service, ports

CONFIG = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{host}:{controller}
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller}
advertised.listeners=PLAINTEXT://{host}:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
log.dirs={logs}
auto.create.topics.enable=false
num.network.threads=2
num.io.threads=4
log.segment.bytes=67108864
log.retention.hours=6
log.retention.bytes=1073741824
log.cleaner.dedupe.buffer.size=16777216
group.initial.rebalance.delay.ms=0
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
"""
JVM = ["-Xms128m", "-Xmx512m", "-XX:+UseSerialGC", "-Djava.awt.headless=true"]
LOGGING = {"defaultLogLevel": "warn", "showDateTime": "true", "dateTimeFormat": "HH:mm:ss.SSS"}


def new_cluster_id() -> str:
    """Return a random id that no option parser takes for an option."""
    drawn = secrets.token_urlsafe(16)
    return new_cluster_id() if drawn.startswith("-") else drawn


def _java(*arguments: str) -> list[str]:
    logging = [f"-Dorg.slf4j.simpleLogger.{key}={value}" for key, value in LOGGING.items()]
    return [packages.java(), *JVM, *logging, "-cp", f"{downloads.kafka()}/*", *arguments]


def start(place: Place) -> Service:
    """Start a broker, on a freshly formatted directory if it has none."""
    kept, data = ports(place, ["kafka", "kafka_controller"]), place.data("kafka")
    port, controller = kept["kafka"], kept["kafka_controller"]
    config, logs = data / "server.properties", data / "topics"
    config.write_text(CONFIG.format(host=HOST, port=port, controller=controller, logs=logs))
    if not (logs / "meta.properties").exists():
        storage = ["kafka.tools.StorageTool", "format", "-t", new_cluster_id(), "-c", str(config)]
        packages.run_quietly(_java(*storage))
    return spawn(place, "kafka", port, _java("kafka.Kafka", str(config)))
