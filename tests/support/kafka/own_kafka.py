"""A Kafka of the test's own: behind a proxy, or with ACLs and a listener a log-in."""

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tests.support.certificates import Certificates
from tests.support.checkout import ROOT, ask, missing
from tests.support.network.proxy import Proxy, proxied
from tests.support.servers import COMPILES_ONCE, free_port, listens, wait_until

USER = "shop"
PASSWORD = "canary-4c81e0"  # noqa: S105 - must not come out again

# `OPEN` is for the test alone: it makes topics and reads them back.
CONFIG = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
inter.broker.listener.name=OPEN
log.dirs={home}/topics
num.network.threads=2
num.io.threads=2
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
group.initial.rebalance.delay.ms=0
"""
PROXIED = """\
listeners=OPEN://127.0.0.1:{open},PROXIED://127.0.0.1:{proxied},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=OPEN://127.0.0.1:{open},PROXIED://127.0.0.1:{proxy}
listener.security.protocol.map=OPEN:PLAINTEXT,PROXIED:PLAINTEXT,CONTROLLER:PLAINTEXT
auto.create.topics.enable=true
"""
MODULES = "org.apache.kafka.common.security"
SECURE = f"""\
listeners=OPEN://127.0.0.1:{{open}},SASL://127.0.0.1:{{sasl}},MTLS://127.0.0.1:{{mtls}},\
CONTROLLER://127.0.0.1:{{controller}}
advertised.listeners=OPEN://127.0.0.1:{{open}},SASL://localhost:{{sasl}},MTLS://localhost:{{mtls}}
listener.security.protocol.map=OPEN:PLAINTEXT,SASL:SASL_SSL,MTLS:SSL,CONTROLLER:PLAINTEXT
auto.create.topics.enable=false
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
allow.everyone.if.no.acl.found=true
ssl.keystore.type=PEM
ssl.keystore.location={{server}}
ssl.truststore.type=PEM
ssl.truststore.location={{ca}}
listener.name.mtls.ssl.client.auth=required
listener.name.sasl.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER
listener.name.sasl.plain.sasl.jaas.config=\
{MODULES}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";
listener.name.sasl.scram-sha-256.sasl.jaas.config={MODULES}.scram.ScramLoginModule required;
listener.name.sasl.scram-sha-512.sasl.jaas.config={MODULES}.scram.ScramLoginModule required;
listener.name.sasl.oauthbearer.sasl.jaas.config=\
{MODULES}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";
"""
ASK = f"""\
import kafka_server
answer = [kafka_server._java("{COMPILES_ONCE}"), kafka_server.new_cluster_id()]
"""
STARTED_WITHIN_S = 60


class SecureKafka(NamedTuple):
    """The ports of its listeners."""

    open: int
    sasl: int
    mtls: int
    controller: int


class ProxiedKafka(NamedTuple):
    """Where the test's own consumer finds it, and the clients' way to it."""

    bootstrap: str
    proxy: Proxy


@contextmanager
def secure_kafka(home: Path, certificates: Certificates) -> Iterator[SecureKafka]:
    ports = SecureKafka(*(free_port() for _ in SecureKafka._fields))
    users = []
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        users += ["--add-scram", f"{mechanism}=[name={USER},password={PASSWORD}]"]
    files = {"server": certificates.server, "ca": certificates.ca}
    with _running(home, SECURE, ports._asdict(), files, users):
        yield ports


@contextmanager
def proxied_kafka(home: Path) -> Iterator[ProxiedKafka]:
    """Run a broker that makes topics on demand, and is reached through a proxy."""
    ports = {name: free_port() for name in ("open", "proxied", "controller")}
    with (
        proxied(ports["proxied"]) as proxy,
        _running(home, PROXIED, ports, {"proxy": str(proxy.port)}),
    ):
        yield ProxiedKafka(f"127.0.0.1:{ports['open']}", proxy)


@contextmanager
def _running(
    home: Path,
    lines: str,
    ports: Mapping[str, int],
    more: Mapping[str, str] | None = None,
    users: Sequence[str] = (),
) -> Iterator["KafkaNode"]:
    try:
        java, cluster = ask(ROOT, ASK)
    except subprocess.CalledProcessError:
        missing("a Kafka of the test's own", "run `make services-up` to see why")
    config = (CONFIG + lines).format(home=home, **ports, **(more or {}))
    node = KafkaNode(home, config, tuple(ports.values()), java, cluster, users)
    node.start()
    try:
        node.wait()
        yield node
    finally:
        node.kill()


class KafkaNode:
    """One server in a home of its own, formatted by its construction; `kill` it, or it stays."""

    def __init__(
        self,
        home: Path,
        config: str,
        ports: Sequence[int],
        java: Sequence[str],
        cluster: str,
        users: Sequence[str] = (),
    ) -> None:
        self._home, self._ports, self._java = home, ports, java
        self._config = home / "server.properties"
        self._config.write_text(config)
        storage = ["kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(self._config)]
        subprocess.run([*java, *storage, *users], stdout=subprocess.DEVNULL, check=True)

    def start(self) -> None:
        with (self._home / "server.log").open("ab") as log:
            command = [*self._java, "kafka.Kafka", str(self._config)]
            self._server = subprocess.Popen(command, stdout=log, stderr=log)

    def wait(self) -> None:
        """Wait until it listens."""
        for port in self._ports:
            what = f"Kafka, see {self._home}/server.log"
            wait_until(partial(listens, port), what, STARTED_WITHIN_S)

    def kill(self) -> None:
        self._server.kill()
        self._server.wait()
