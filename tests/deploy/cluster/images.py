"""The images that the cluster's tests need, as archives: built without Docker, or with it."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from duebridge.store.server.embedded import server_program
from tests.support.checkout import ROOT, downloaded

WORKER = "localhost/duebridge:test"
STORE = "localhost/duebridge-store:test"
SPARK = "localhost/duebridge-spark:test"
RECIPES = ROOT / "deploy" / "images"
ENTRY_SCRIPT = RECIPES / "spark_entrypoint.py"
TOOLS = Path(os.environ.get("DUEBRIDGE_K8S_TOOLS", ROOT.parent / "shared" / "k8s"))
EXTRAS = "http,kafka,librdkafka,otel,rabbitmq"
SPARK_EXTRAS = "hdfs,http,kafka,spark"
INSTALL = """\
python3 -m venv /opt/duebridge
/opt/duebridge/bin/pip install --no-index --find-links /wheels 'duebridge[{extras}]'
rm -r /wheels"""
ENVIRONMENT = (
    "PATH=/opt/duebridge/bin:/usr/bin:/bin",
    "PYTHONDONTWRITEBYTECODE=1",
    "PYTHONFAULTHANDLER=1",
    "DUEBRIDGE_CONFIG=/etc/duebridge/duebridge.yaml",
    "DUEBRIDGE_HEALTH_PORT=8080",
)
SPARK_DEBIAN = "ca-certificates,openjdk-17-jre-headless,procps,python3,python3-venv,tini,tzdata"
SPARK_HOME = "/opt/duebridge/lib/python3.11/site-packages/pyspark"
SPARK_ENTRY = "/opt/duebridge/bin/spark-entrypoint"
INIT = "/usr/bin/tini -s --"
ENTRYPOINTS = {"worker": f"{INIT} /opt/duebridge/bin/duebridge", "spark": f"{INIT} {SPARK_ENTRY}"}
SPARK_ENVIRONMENT = (
    *ENVIRONMENT[:-1],
    "HOME=/tmp",
    f"SPARK_HOME={SPARK_HOME}",
    "PYSPARK_PYTHON=/opt/duebridge/bin/python",
)
# Hadoop wants the user to have a name.
SPARK_USER = "echo duebridge:x:10001:10001::/tmp:/usr/sbin/nologin >> /etc/passwd"


def build_images(folder: Path) -> list[Path]:
    """Return the archives of all images; ends the program where nothing here builds one."""
    archives = [folder / f"{name}.tar" for name in ("worker", "store", "spark")]
    if (TOOLS / "build-image").exists():
        _build_with_tools(folder, *archives)
    elif _has_docker():
        _build_with_docker(*archives)
    else:
        sys.exit("no image can be built: start Docker, or set DUEBRIDGE_K8S_IMAGE")
    return archives


def _has_docker() -> bool:
    if shutil.which("docker") is None:
        return False
    return subprocess.run(["docker", "info"], capture_output=True, check=False).returncode == 0


def _build_with_tools(folder: Path, worker: Path, store: Path, spark: Path) -> None:
    """Build that of Spark beside the others: each waits for packages more than it works."""
    base = _base(folder)  # installs mmdebstrap, which Spark's base wants too
    with ThreadPoolExecutor(1) as beside:
        of_spark = beside.submit(_build_spark, folder, spark)
        _build_worker(base, worker)
        program = f"{server_program()}:/usr/bin/valkey-server"
        wanted = ["--add", program, "--run", "chmod 755 /usr/bin/valkey-server"]
        _build(worker, wanted, STORE, store)
        of_spark.result()


def _base(folder: Path) -> Path:
    """Return the archive of Debian with Python, made once."""
    base = folder / "base-with-init.tar"
    if not base.exists():
        env = {**os.environ, "EXTRA": "tini"}
        subprocess.run([TOOLS / "base-image", base], env=env, check=True)
    return base


def _build_worker(base: Path, archive: Path) -> None:
    entry = ["--entrypoint", ENTRYPOINTS["worker"], "--cmd", "run"]
    with tempfile.TemporaryDirectory() as wheels:
        collect_wheels(Path(wheels), EXTRAS)
        install = ["--add", f"{wheels}:/wheels", "--run", INSTALL.format(extras=EXTRAS)]
        _build(base, [*install, *_env(ENVIRONMENT), *entry], WORKER, archive)


def _spark_base(folder: Path) -> Path:
    """Return the archive of Debian with Python and Java, made once."""
    base = folder / "spark-base.tar"
    if not base.exists():
        root = folder / "spark-root.tar"
        words = ["mmdebstrap", "--quiet", "--variant=essential", f"--include={SPARK_DEBIAN}"]
        # Java's scripts make links to its pages, and fail where that is not possible.
        words.append("--setup-hook=mkdir -p $1/usr/share/man/man1")
        subprocess.run([*words, "bookworm", root], check=True)
        layer = ["--base", "scratch", "--layer", root, "--tag", "localhost/debian-java:bookworm"]
        subprocess.run([TOOLS / "build-image", *layer, base], check=True)
        root.unlink()
    return base


def _build_spark(folder: Path, archive: Path) -> None:
    """Build what spark.Dockerfile does, without the connectors to object stores."""
    jars = Path(downloaded("spark").partition(",")[0]).parent
    with tempfile.TemporaryDirectory() as wheels:
        collect_wheels(Path(wheels), SPARK_EXTRAS)
        install = ["--add", f"{wheels}:/wheels", "--run", INSTALL.format(extras=SPARK_EXTRAS)]
        added = [f"{jars}:{SPARK_HOME}/jars", f"{ENTRY_SCRIPT}:{SPARK_ENTRY}"]
        more = [word for each in added for word in ("--add", each)]
        more += ["--run", SPARK_USER, "--run", f"chmod 755 {SPARK_ENTRY}"]
        more += ["--entrypoint", ENTRYPOINTS["spark"], "--cmd", "spark --help"]
        words = [*install, *more, *_env(SPARK_ENVIRONMENT)]
        _build(_spark_base(folder), words, SPARK, archive)


def _env(variables: tuple[str, ...]) -> list[str]:
    return [word for each in variables for word in ("--env", each)]


def _build(base: Path, words: list[str], tag: str, archive: Path) -> None:
    build = [TOOLS / "build-image", "--user", "10001:10001", "--base", base]
    subprocess.run([*build, *words, "--tag", tag, archive], check=True)


def collect_wheels(into: Path, extras: str) -> None:
    """Fill a folder with the wheel and the locked packages, for Debian's Python 3.11.2."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(into)]
    subprocess.run(build, cwd=ROOT, check=True)
    locked = re.findall(r"^[\w.-]+==[^\\\n]+", (ROOT / "requirements.lock").read_text(), re.M)
    (constraints := into / "constraints.txt").write_text("\n".join(locked))
    pins = {each.partition("==")[0]: each.partition(";")[0].strip() for each in locked}
    pip = [sys.executable, "-m", "pip"]
    # redis needs async-timeout before Python 3.11.3 only: pip asks the Python that runs it
    wanted = [f"{next(into.glob('*.whl'))}[{extras}]", pins["async-timeout"]]
    if "spark" in extras:  # published as source alone; pip keeps the wheel that it makes
        words = ["wheel", "--quiet", "--no-deps", "--wheel-dir", str(into), pins["pyspark"]]
        subprocess.run([*pip, *words], check=True)
    words = ["download", "--quiet", "--only-binary=:all:", "--python-version=3.11.2"]
    words += ["--constraint", str(constraints), "--find-links", str(into), "--dest", str(into)]
    subprocess.run([*pip, *words, *wanted], check=True)


def _build_with_docker(worker: Path, store: Path, spark: Path) -> None:
    build = ["docker", "build", "--tag"]
    for tag, recipe in ((WORKER, "worker"), (SPARK, "spark")):
        file = RECIPES / f"{recipe}.Dockerfile"
        subprocess.run([*build, tag, "--file", file, ROOT], check=True)
    with tempfile.TemporaryDirectory() as context:
        shutil.copy(server_program(), Path(context, "valkey-server"))
        copied = f"FROM {WORKER}\nCOPY --chmod=755 valkey-server /usr/bin/\n"
        Path(context, "Dockerfile").write_text(copied)
        subprocess.run([*build, STORE, context], check=True)
    for tag, tar in ((WORKER, worker), (STORE, store), (SPARK, spark)):
        subprocess.run(["docker", "save", "--output", tar, tag], check=True)
