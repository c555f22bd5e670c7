"""The wheel installed elsewhere and beside a user's folders; the Spark image's entry point."""

import re
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from importlib.metadata import requires, version
from pathlib import Path

import pytest

from deploy.images.spark_entrypoint import EXECUTOR_OPTIONS, command
from deploy.supply.locked import read_pins
from tests.support.checkout import ROOT

SCRIPTS = {path.stem for path in (ROOT / "lua").glob("*.lua")}
TOP_LEVEL = {
    "duebridge", "duebridge_connectors", "pyspark_duebridge", "pyspark_duebridge_journal",
}  # fmt: skip
PROGRAM = """
import duebridge, duebridge_connectors.memory, pyspark_duebridge
from duebridge.store.server.scripts import names, script
assert all(len(script(name).sha) == 40 for name in names())
print(duebridge.__file__, *names())
"""


def run(*words: str | Path, cwd: Path = ROOT) -> str:
    done = subprocess.run(words, cwd=cwd, env={}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def build(into: Path, *options: str, source: Path = ROOT) -> Path:
    run(sys.executable, "-m", "hatchling", "build", "-d", str(into), *options, cwd=source)
    return next(into.glob("*.whl"))


def files(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as opened:
        return set(opened.namelist())


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of an environment with the wheel; its dependencies are those of this one."""
    home = tmp_path_factory.mktemp("installed")
    run(sys.executable, "-m", "venv", "--without-pip", home)
    pip = (sys.executable, "-m", "pip", "-q", "--python", home / "bin" / "python")
    run(*pip, "install", "--no-deps", wheel)
    # the path alone: a .pth file there, as of an editable install, is not followed
    [site] = home.glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return home / "bin"


@pytest.fixture
def beside(tmp_path: Path) -> Path:
    """A folder of a user, whose own packages have the names of our source folders."""
    for name in ("bridge", "connectors", "lua"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f"raise SystemExit('{name} of the user')\n")
    (tmp_path / "program.py").write_text(PROGRAM)
    return tmp_path


def test_wheel_has_top_level_names_of_duebridge_alone(wheel: Path) -> None:
    tops = {name.split("/")[0].removesuffix(".py") for name in files(wheel)}
    assert {top for top in tops if not top.endswith(".dist-info")} == TOP_LEVEL


def test_install_wheel_beside_a_users_folders_finds_scripts_and_command(
    installed: Path, beside: Path
) -> None:
    where, *scripts = run(installed / "python", "program.py", cwd=beside).split()
    assert set(scripts) == SCRIPTS
    assert Path(where).is_relative_to(installed.parent)
    assert run(installed / "duebridge", "--version", cwd=beside).strip() == version("duebridge")
    config = ROOT / "deploy" / "compose" / "config" / "duebridge.yaml"
    assert run(installed / "duebridge", "config", "check", config, cwd=beside)


def test_run_checkout_beside_a_users_folders_finds_every_script(beside: Path) -> None:
    assert set(run(sys.executable, "program.py", cwd=beside).split()[1:]) == SCRIPTS


def test_build_wheel_from_the_sdist_has_the_same_files(wheel: Path, tmp_path: Path) -> None:
    with tarfile.open(next(wheel.parent.glob("*.tar.gz"))) as sdist:
        sdist.extractall(tmp_path, filter="data")
    again = build(tmp_path, "-t", "wheel", source=next(tmp_path.iterdir()))
    assert files(wheel) == files(again)


def test_spark_image_has_what_spark_asks_for_before_it_maps_arrow() -> None:
    """Its extra `sql`: this environment has pandas for other reasons too, the image would not."""
    asked = [each for each in requires("pyspark") or () if 'extra == "sql"' in each]
    names = {re.split(r"[^\w-]", each)[0] for each in asked}
    assert {"pandas", "pyarrow"} <= names
    locked = {pin.name for pin in read_pins(ROOT / "deploy" / "images" / "spark.lock")}
    assert names <= locked


def test_spark_entrypoint_of_other_words_is_duebridge() -> None:
    assert command(["spark", "--help"], {}) == ["/opt/duebridge/bin/duebridge", "spark", "--help"]


def test_spark_entrypoint_of_a_driver_submits_in_its_pod() -> None:
    variables = {"SPARK_HOME": "/spark", "SPARK_DRIVER_BIND_ADDRESS": "10.0.0.7"}
    words = command(["driver", "--class", "Main"], variables)
    assert (words[0], words[-2:]) == ("/spark/bin/spark-submit", ["--class", "Main"])
    assert "spark.driver.bindAddress=10.0.0.7" in words


def test_spark_entrypoint_of_an_executor_keeps_the_order_of_java_options() -> None:
    variables = {name: name.lower() for name in EXECUTOR_OPTIONS.values()}
    variables |= {"SPARK_HOME": "/spark", "SPARK_EXECUTOR_MEMORY": "2g", "SPARK_CONF_DIR": "/conf"}
    variables |= {f"SPARK_JAVA_OPT_{number}": f"-D{number}" for number in (10, 2, 0)}
    words = command(["executor"], variables)
    assert words[:6] == ["java", "-D0", "-D2", "-D10", "-Xms2g", "-Xmx2g"]
    assert words[words.index("-cp") + 1] == "/conf:/spark/jars/*"
    assert words[words.index("--driver-url") + 1] == "spark_driver_url"
