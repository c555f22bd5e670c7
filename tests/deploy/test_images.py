"""What the images install: the wheel in a clean environment, and the Spark image's entry point."""

import subprocess
import sys
import sysconfig
from importlib.metadata import version
from pathlib import Path

import pytest

from deploy.images.spark_entrypoint import EXECUTOR_OPTIONS, command
from tests.support.checkout import ROOT

PROGRAM = """
from duebridge.store.scripts import names, script
assert all(len(script(name).sha) == 40 for name in names())
print(len(names()))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of an environment with the wheel; its dependencies are those of this one."""
    home = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(home)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home / "venv"], check=True)
    python = home / "venv" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps"]
    subprocess.run([*pip, *home.glob("*.whl")], check=True, capture_output=True)
    # the path alone: a .pth file there, as of an editable install, is not followed
    [site] = (home / "venv" / "lib").glob("python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return python.parent


def run(*words: str | Path, cwd: Path) -> str:
    return subprocess.run(words, cwd=cwd, check=True, capture_output=True, text=True).stdout


def test_wheel_elsewhere_has_every_script_and_the_command(installed: Path, tmp_path: Path) -> None:
    scripts = run(installed / "python", "-c", PROGRAM, cwd=tmp_path)
    assert int(scripts) == len(list((ROOT / "lua").glob("*.lua")))
    where = run(
        installed / "python", "-c", "import duebridge; print(duebridge.__file__)", cwd=tmp_path
    )
    assert Path(where).is_relative_to(installed.parent)
    assert run(installed / "duebridge", "--version", cwd=tmp_path).strip() == version("duebridge")
    config = ROOT / "deploy" / "compose" / "config" / "duebridge.yaml"
    assert run(installed / "duebridge", "config", "check", config, cwd=tmp_path)


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
