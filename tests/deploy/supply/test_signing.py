"""A release's own steps sign files and chart, here with a key instead of an identity.

cosign, helm and a registry run as they are. Only the words differ that a runner with an identity
has no need of: the key, no public log, plain HTTP.
"""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.chart import Chart
from tests.deploy.supply.release import SOURCE, VERSION, script
from tests.support.checkout import ROOT, downloaded

pytestmark = [pytest.mark.release, pytest.mark.timeout(1800)]  # cosign, the first time
OFFLINE = ("--insecure-ignore-tlog", "--private-infrastructure")


class Signer:
    """Runs steps of the release where `cosign` has a key of the test's own."""

    def __init__(self, home: Path, helm: str) -> None:
        self.home = home
        self.cosign = downloaded("cosign")
        self.environment = os.environ | {"COSIGN_PASSWORD": "", "RUNNER_TEMP": str(home)}
        self.run(self.cosign, "generate-key-pair")
        self._stands_in("cosign", f'v=$1; shift; exec {self.cosign} "$v" {self._key()} "$@"')
        self._stands_in("helm", f'[ "$1" != push ] || set -- "$@" --plain-http; exec {helm} "$@"')
        self.environment["PATH"] = f"{home}:{os.environ['PATH']}"

    def _key(self) -> str:
        return f"--key {self.home}/cosign.key --tlog-upload=false"

    def _stands_in(self, name: str, text: str) -> None:
        (self.home / name).write_text(f"#!/bin/sh\n{text}\n", "utf-8")
        (self.home / name).chmod(0o755)

    def run(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        env = self.environment | variables
        return subprocess.run(words, cwd=self.home, env=env, capture_output=True, text=True)

    def step(self, job: str, name: str, **variables: str) -> None:
        """Run a step of the workflow, word by word."""
        done = self.run("bash", "-e", "-c", script(job, name), **variables)
        assert done.returncode == 0, done.stderr

    def verifies(self, verb: str, *words: str) -> bool:
        return not self.run(self.cosign, verb, "--key=cosign.pub", *OFFLINE, *words).returncode


@pytest.fixture
def signer(tmp_path: Path, chart: Chart) -> Signer:
    return Signer(tmp_path, chart.helm)


@pytest.fixture
def registry() -> Iterator[str]:
    """Give the address of an empty registry; it says its port once it serves."""
    with subprocess.Popen([downloaded("registry"), "-port=0"], stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        port = process.stderr.readline().decode().rpartition(" ")[2].strip()
        yield f"localhost:{port}/shop"
        process.kill()


def test_signed_file_is_verified_and_one_with_another_byte_is_not(signer: Signer) -> None:
    (signer.home / "dist").mkdir()
    files = [signer.home / "dist" / name for name in ("a.whl", "b.cdx.json")]
    for file in files:
        file.write_bytes(file.name.encode())
    signer.step("files", "Sign every file")
    for file in files:
        bundle = f"--bundle={file}.sigstore.json"
        assert signer.verifies("verify-blob", bundle, str(file))
        file.write_bytes(file.read_bytes() + b"!")
        assert not signer.verifies("verify-blob", bundle, str(file))


def test_pushed_chart_is_verified_by_its_digest_and_another_is_not(
    signer: Signer, registry: str
) -> None:
    where = {"REGISTRY": registry, "SOURCE": SOURCE, "REVISION": "a" * 40, "VERSION": VERSION}
    packing = script("chart", "Package, with the names of the published images")
    env = signer.environment | where
    subprocess.run(["bash", "-e", "-c", packing], cwd=ROOT, env=env, check=True)
    signer.step("chart", "Publish and sign", **where)
    pushed = (signer.home / "pushed.txt").read_text("utf-8")
    _, _, digest = pushed.partition("Digest: ")
    chart = f"{registry}/charts/duebridge"
    assert signer.verifies("verify", f"{chart}@{digest.split()[0]}")
    other = signer.home / "other"
    other.mkdir()
    words = ("package", "duebridge", "--version=0.0.1", f"--destination={other}")
    assert signer.run("helm", *words).returncode == 0
    assert (
        signer.run("helm", "push", str(*other.iterdir()), f"oci://{registry}/charts").returncode
        == 0
    )
    assert not signer.verifies("verify", f"{chart}:0.0.1")
