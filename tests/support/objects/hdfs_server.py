"""A small HDFS of the test's own: Hadoop's, of one name node and one data node, in one JVM."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from tests.support.checkout import downloaded, missing
from tests.support.servers import COMPILES_ONCE, wait_until

STARTED_WITHIN_S = 90
MANAGER = "org.apache.hadoop.test.MiniDFSClusterManager"


@contextmanager
def hdfs_server(home: Path) -> Iterator[str]:
    """Run one, and give its URI."""
    java = shutil.which("java") or missing("java", "install OpenJDK 17")
    jars = [downloaded("hdfs"), f"{Path(pyspark.__file__).parent}/jars/*"]
    said = home / "details.json"
    settings = {"hdfs.minidfs.basedir": str(home / "data"), "dfs.replication": "1"}
    command = [java, COMPILES_ONCE, "-XX:+UseSerialGC", "-cp", os.pathsep.join(jars), MANAGER]
    command += ["-format", "-datanodes", "1", "-nnport", "0", "-writeDetails", str(said)]
    command += [word for name, value in settings.items() for word in ("-D", f"{name}={value}")]
    with (home / "hdfs.log").open("wb") as log:
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        wait_until(lambda: port_of(said), "HDFS", STARTED_WITHIN_S)
        yield f"hdfs://127.0.0.1:{port_of(said)}"
    finally:
        server.kill()
        server.wait()


def port_of(said: Path) -> int:
    """The name node's port; 0 while it is not written."""
    try:
        return int(json.loads(said.read_text())["namenode_port"])
    except (OSError, ValueError):
        return 0
