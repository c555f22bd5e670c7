"""A Kafka with an authorizer: the local service stack, in a folder and with lines of its own."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.conftest import ROOT, missing

LAST_LINE = "share.coordinator.state.topic.min.isr=1\n"
AUTHORIZER = """\
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
allow.everyone.if.no.acl.found=true
"""


@contextmanager
def kafka_with_authorizer(folder: Path) -> Iterator[str]:
    """Run a broker where everybody may do what no ACL denies; gives its address."""
    local = folder / "deploy" / "local"
    shutil.copytree(ROOT / "deploy" / "local", local)
    server = local / "kafka_server.py"
    text = server.read_text()
    assert LAST_LINE in text
    server.write_text(text.replace(LAST_LINE, LAST_LINE + AUTHORIZER))
    if _services(local, "up").returncode:
        missing("a Kafka of the test's own", "run `make services-up` to see why")
    try:
        services = json.loads((folder / ".services" / "services.json").read_text())
        yield str(services["kafka"]["bootstrap"])
    finally:
        _services(local, "down")


def _services(local: Path, command: str) -> subprocess.CompletedProcess[bytes]:
    words = [sys.executable, str(local / "services.py"), command, "--only", "kafka"]
    return subprocess.run(words, capture_output=True, check=False)
