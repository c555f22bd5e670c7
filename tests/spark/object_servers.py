"""Object stores of the test's own: moto's S3 behind a proxy as strict as AWS; a small HDFS.

`python -m tests.spark.object_servers PORT` runs S3. A request is answered before the next begins:
moto looks and writes in two steps, AWS in one. In the bucket `forgetful` conditions are ignored.
HDFS is Hadoop's own, of one name node and one data node, in one JVM.
"""

import json
import os
import shutil
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pyspark

from tests.support.checkout import ROOT, downloaded, missing
from tests.support.servers import COMPILES_ONCE, free_port, listens, wait_until

BUCKET, FORGETFUL = "cold-rows", "forgetful"
ACCESS_KEY, SECRET_KEY = "AKIAOFTHETEST", "canary-5e0c1f"
STARTED_WITHIN_S = 60
HDFS_WITHIN_S = 90
MANAGER = "org.apache.hadoop.test.MiniDFSClusterManager"


class S3Server(NamedTuple):
    """Where it listens, and what it was asked."""

    port: int
    log: Path

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def options(self, key: str = "S3_KEY", secret: str = "S3_SECRET") -> dict[str, str]:  # noqa: S107
        """Options of a place, with the variables that hold the keys."""
        return {
            "endpoint": self.endpoint,
            "region": "eu-west-1",
            "access_key_id": f"${{{key}}}",
            "secret_access_key": f"${{{secret}}}",
        }

    def make(self, bucket: str) -> None:
        request = urllib.request.Request(f"{self.endpoint}/{bucket}", method="PUT")  # noqa: S310
        with urllib.request.urlopen(request) as answer:  # noqa: S310 - our own
            assert answer.status == 200

    def said(self) -> str:
        return self.log.read_text()


@contextmanager
def s3_server(home: Path) -> Iterator[S3Server]:
    """Run one with both buckets."""
    port = free_port()
    log = home / "s3.log"
    command = [sys.executable, "-m", "tests.spark.object_servers", str(port)]
    with log.open("wb") as out:
        server = subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=out)
    try:
        wait_until(lambda: listens(port), "the object store", STARTED_WITHIN_S)
        made = S3Server(port, log)
        for bucket in (BUCKET, FORGETFUL):
            made.make(bucket)
        yield made
    finally:
        server.kill()
        server.wait()


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
        wait_until(lambda: port_of(said), "HDFS", HDFS_WITHIN_S)
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


def main() -> None:
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import run_simple

    moto: Any = DomainDispatcherApplication(create_backend_app)
    one_at_a_time = threading.Lock()

    def app(environ: dict[str, Any], start_response: Any) -> Any:
        if environ["PATH_INFO"].startswith(f"/{FORGETFUL}/"):
            environ.pop("HTTP_IF_NONE_MATCH", None)
        with one_at_a_time:
            return moto(environ, start_response)

    run_simple("127.0.0.1", int(sys.argv[1]), app, threaded=True)


if __name__ == "__main__":
    main()
