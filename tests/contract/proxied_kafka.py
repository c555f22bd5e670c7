"""A Kafka of the test's own that makes topics on demand, and is reached through a proxy."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.conftest import ROOT, missing
from tests.contract.listeners import free_port
from tests.contract.proxy import Proxy, proxy_to
from tests.store.servers import listens, wait_until

# `OPEN` is for the test's own consumer; clients of `PROXIED` are told to come by the proxy.
CONFIG = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=OPEN://127.0.0.1:{open},PROXIED://127.0.0.1:{proxied},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=OPEN://127.0.0.1:{open},PROXIED://127.0.0.1:{proxy}
listener.security.protocol.map=OPEN:PLAINTEXT,PROXIED:PLAINTEXT,CONTROLLER:PLAINTEXT
controller.listener.names=CONTROLLER
inter.broker.listener.name=OPEN
log.dirs={logs}
auto.create.topics.enable=true
num.network.threads=2
num.io.threads=2
"""
ASK = """
import json, sys
sys.path.insert(0, "deploy/local")
import kafka_server
print(json.dumps([kafka_server._java(), kafka_server.new_cluster_id()]))
"""


class ProxiedKafka(NamedTuple):
    """Where the test's own consumer finds it, and the clients' way to it."""

    bootstrap: str
    proxy: Proxy


@contextmanager
def proxied_kafka(home: Path) -> Iterator[ProxiedKafka]:
    """Run a broker that nothing but this test uses."""
    asked = subprocess.run([sys.executable, "-c", ASK], cwd=ROOT, capture_output=True)
    if asked.returncode:
        missing("a Kafka of the test's own", "run `make services-up` to see why")
    java, cluster = json.loads(asked.stdout)
    ports = {name: free_port() for name in ("open", "proxied", "controller")}
    config, log = home / "server.properties", home / "server.log"
    with proxy_to(ports["proxied"]) as proxy, log.open("wb") as out:
        config.write_text(CONFIG.format(**ports, proxy=proxy.port, logs=home / "topics"))
        storage = ["kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(config)]
        subprocess.run([*java, *storage], stdout=out, stderr=out, check=True)
        server = subprocess.Popen([*java, "kafka.Kafka", str(config)], stdout=out, stderr=out)
        try:
            wait_until(lambda: listens(ports["proxied"]), f"Kafka, see {log}", within_s=60)
            yield ProxiedKafka(f"127.0.0.1:{ports['open']}", proxy)
        finally:
            server.kill()
            server.wait()
