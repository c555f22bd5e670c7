"""A Kafka of the test's own: one broker, a listener for each way to prove who is there."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tests.conftest import ROOT, missing
from tests.security.certificates import Certificates
from tests.store.servers import free_port, listens, wait_until

USER = "shop"
PASSWORD = "canary-4c81e0"  # noqa: S105 - must not come out again

# `OPEN` is for the test alone: it makes topics and reads them back.
CONFIG = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=OPEN://127.0.0.1:{open},SASL://127.0.0.1:{sasl},MTLS://127.0.0.1:{mtls},\
CONTROLLER://127.0.0.1:{controller}
advertised.listeners=OPEN://127.0.0.1:{open},SASL://localhost:{sasl},MTLS://localhost:{mtls}
listener.security.protocol.map=OPEN:PLAINTEXT,SASL:SASL_SSL,MTLS:SSL,CONTROLLER:PLAINTEXT
controller.listener.names=CONTROLLER
inter.broker.listener.name=OPEN
ssl.keystore.type=PEM
ssl.keystore.location={server}
ssl.truststore.type=PEM
ssl.truststore.location={ca}
listener.name.mtls.ssl.client.auth=required
listener.name.sasl.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER
listener.name.sasl.plain.sasl.jaas.config=\
org.apache.kafka.common.security.plain.PlainLoginModule required user_{user}="{password}";
listener.name.sasl.scram-sha-256.sasl.jaas.config=\
org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.sasl.scram-sha-512.sasl.jaas.config=\
org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.sasl.oauthbearer.sasl.jaas.config=\
org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required \
unsecuredLoginStringClaim_sub="broker";
log.dirs={logs}
auto.create.topics.enable=false
num.network.threads=2
num.io.threads=2
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
group.initial.rebalance.delay.ms=0
"""
ASK = """
import json, sys
sys.path.insert(0, "deploy/local")
import kafka_server
print(json.dumps([kafka_server._java(), kafka_server.new_cluster_id()]))
"""


class SecureKafka(NamedTuple):
    """The ports of its listeners."""

    open: int
    sasl: int
    mtls: int
    controller: int


@contextmanager
def secure_kafka(home: Path, certificates: Certificates) -> Iterator[SecureKafka]:
    """Run a broker that nothing but this test uses."""
    asked = subprocess.run([sys.executable, "-c", ASK], cwd=ROOT, capture_output=True)
    if asked.returncode:
        missing("a Kafka of the test's own", "run `make services-up` to see why")
    java, cluster = json.loads(asked.stdout)
    ports = SecureKafka(*(free_port() for _ in SecureKafka._fields))
    config = home / "server.properties"
    config.write_text(
        CONFIG.format(
            **ports._asdict(),
            server=certificates.server,
            ca=certificates.ca,
            user=USER,
            password=PASSWORD,
            logs=home / "topics",
        )
    )
    with (home / "server.log").open("wb") as log:
        _format(java, cluster, config, log.fileno())
        server = subprocess.Popen([*java, "kafka.Kafka", str(config)], stdout=log, stderr=log)
    try:
        for port in ports:
            wait_until(partial(listens, port), f"Kafka, see {home}/server.log", within_s=60)
        yield ports
    finally:
        server.kill()
        server.wait()


def _format(java: list[str], cluster: str, config: Path, log: int) -> None:
    words = [*java, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(config)]
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        words += ["--add-scram", f"{mechanism}=[name={USER},password={PASSWORD}]"]
    subprocess.run(words, stdout=log, stderr=log, check=True)
