"""A Prometheus of its own, in a folder that goes away with it: for tests and for the picture."""

import json
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

READY_WITHIN_S = 30.0
RULES = Path(__file__).resolve().parents[1] / "helm" / "duebridge" / "files" / "alerts.yaml"


class PrometheusError(Exception):
    """Prometheus refused a query, or did not come up."""


class Prometheus:
    """Asks a server that runs."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")

    def instant(self, query: str, at: float | None = None) -> list[dict[str, Any]]:
        """Return what a query finds now, or at an instant; raises `PrometheusError`."""
        when = {} if at is None else {"time": at}
        return self._result("query", {"query": query, **when})

    def over(self, query: str, start: float, end: float, step: float) -> list[dict[str, Any]]:
        """Return what a query finds from `start` to `end`; raises `PrometheusError`."""
        asked = {"query": query, "start": start, "end": end, "step": step}
        return self._result("query_range", asked)

    def get(self, path: str, asked: dict[str, Any] | None = None) -> Any:
        """Return what an endpoint of its API answers; raises `PrometheusError`."""
        url = f"{self.url}/api/v1/{path}?{urlencode(asked or {})}"
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:  # noqa: S310 - http, as given
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            with error:
                raise PrometheusError(error.read().decode()) from error
        except OSError as error:
            raise PrometheusError(f"{self.url}: {error}") from error

    def _result(self, path: str, asked: dict[str, Any]) -> list[dict[str, Any]]:
        return list(self.get(path, asked)["result"])


@contextmanager
def prometheus(program: str, folder: Path, targets: Sequence[str]) -> Iterator[Prometheus]:
    """Run one that scrapes these addresses every second, with the alerts loaded."""
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(RULES)],
        "scrape_configs": [{"job_name": "duebridge", "static_configs": [{"targets": [*targets]}]}],
    }
    (folder / "prometheus.yml").write_text(json.dumps(config))  # YAML takes JSON
    address = f"127.0.0.1:{free_port()}"
    command = [
        program,
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}",
        "--enable-feature=exemplar-storage",
    ]
    with (folder / "prometheus.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        _await_ready(f"http://{address}/-/ready", process)
        yield Prometheus(f"http://{address}")
    finally:
        process.terminate()
        process.wait()


def free_port() -> int:
    """Return a port that nobody has now."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def _await_ready(url: str, process: "subprocess.Popen[bytes]") -> None:
    give_up_at = time.monotonic() + READY_WITHIN_S
    while time.monotonic() < give_up_at and process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=5):  # noqa: S310 - our own address
                return
        except OSError:
            time.sleep(0.1)
    raise PrometheusError(f"prometheus at {url} did not come up")
