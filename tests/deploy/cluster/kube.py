"""kubectl and helm on the cluster of KUBECONFIG, in a namespace of this run."""

import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.deploy.chart import FOLDER, Object
from tests.support.checkout import ROOT

ANSWERS_WITHIN_S = 120.0
READY_WITHIN_S = 180.0  # four releases at once on two busy cores
LOOK_EVERY_S = 0.1


class Refused(Exception):
    """What kubectl or helm said before it failed."""


class Kube:
    """One namespace, for as long as the tests run."""

    def __init__(self, tools: Path, namespace: str) -> None:
        self.namespace = namespace
        self._env = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}

    def kubectl(self, *words: str, given: str = "") -> str:
        """Return what kubectl prints; raises `Refused`."""
        return self._run("kubectl", *words, given=given)

    def helm(self, *words: str) -> str:
        """Return what helm prints; raises `Refused`."""
        return self._run("helm", *words)

    def shell(self, line: str) -> str:
        """Return what a line of a page prints, typed in the checkout; raises `Refused`."""
        return self._done(["bash", "-o", "pipefail", "-c", line])

    def _run(self, program: str, *words: str, given: str = "") -> str:
        return self._done([program, "-n", self.namespace, *words], given)

    def _done(self, command: list[str], given: str = "") -> str:
        ways: Any = {"env": self._env, "cwd": ROOT, "capture_output": True, "text": True}
        limit_s = READY_WITHIN_S + 30
        done = subprocess.run(command, input=given, timeout=limit_s, check=False, **ways)
        if done.returncode:
            raise Refused(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
        return done.stdout

    def watch(self, *words: str) -> "subprocess.Popen[str]":
        """Start a kubectl that goes on printing; whoever asks for it ends it."""
        command, null = ["kubectl", "-n", self.namespace, *words], subprocess.DEVNULL
        return subprocess.Popen(
            command, env=self._env, stdin=null, stdout=subprocess.PIPE, stderr=null, text=True
        )

    def get(self, *words: str) -> Any:
        """Return objects as kubectl has them; raises `Refused`."""
        return json.loads(self.kubectl("get", *words, "-o", "json"))

    def apply(self, *objects: Object) -> None:
        """Make objects, or change them."""
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
        self.kubectl("apply", "-f", "-", given=text)

    def install(self, name: str, values: Path, *options: str) -> str:
        """Install or upgrade the chart, and wait until it is ready; raises `Refused`."""
        words = ("upgrade", "--install", name, str(FOLDER), "-f", str(values))
        return self.helm(*words, "--wait", f"--timeout={READY_WITHIN_S:.0f}s", *options)


def until(is_true: Callable[[], object], what: str, within_s: float = ANSWERS_WITHIN_S) -> float:
    """Return how many seconds it took to become true; fails the test at the deadline."""
    began = time.monotonic()
    while not is_true():
        assert time.monotonic() - began < within_s, f"gave up waiting for {what}"
        time.sleep(LOOK_EVERY_S)
    return time.monotonic() - began


@contextmanager
def meanwhile(turn: Callable[[], object], every_s: float) -> Iterator[None]:
    """Take turns in a thread until the block is done; the first one that fails ends them."""
    done, failed = threading.Event(), list[Exception]()

    def run() -> None:
        try:
            while not done.wait(every_s):
                turn()
        except Exception as error:  # told by the thread that waits for this one
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
    if failed:
        raise failed[0]
