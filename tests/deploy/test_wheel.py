"""The distribution: its top-level names, its scripts, and what lies beside a user's script."""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = {path.stem for path in (ROOT / "lua").glob("*.lua")}
PROGRAM = """
import duebridge, duebridge_connectors.memory, pyspark_duebridge
from duebridge.store.scripts import names, script
assert all(len(script(name).sha) == 40 for name in names())
print(*names())
"""


def run(*words: str, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, *words], cwd=cwd, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("dist")
    run("-m", "hatchling", "build", "-d", str(where), cwd=ROOT)
    return where


@pytest.fixture(scope="module")
def installed(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("site")
    wheel = next(dist.glob("*.whl"))
    run("-m", "pip", "-q", "install", "--no-deps", "--target", str(where), str(wheel), cwd=where)
    return where


@pytest.fixture
def beside(tmp_path: Path) -> Path:
    """A folder of a user, whose own packages have the names of our source folders."""
    for name in ("bridge", "connectors", "lua"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f"raise SystemExit('{name} of the user')\n")
    (tmp_path / "program.py").write_text(PROGRAM)
    return tmp_path


def test_wheel_has_top_level_names_of_duebridge_alone(dist: Path) -> None:
    with zipfile.ZipFile(next(dist.glob("*.whl"))) as wheel:
        tops = {name.split("/")[0].removesuffix(".py") for name in wheel.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {
        "duebridge",
        "duebridge_connectors",
        "pyspark_duebridge",
    }


def test_install_wheel_beside_a_users_folders_finds_every_script(
    installed: Path, beside: Path
) -> None:
    assert set(run("program.py", cwd=beside, PYTHONPATH=str(installed)).split()) == SCRIPTS


def test_run_checkout_beside_a_users_folders_finds_every_script(beside: Path) -> None:
    assert set(run("program.py", cwd=beside).split()) == SCRIPTS


def test_build_wheel_from_the_sdist_has_the_same_files(dist: Path, tmp_path: Path) -> None:
    with tarfile.open(next(dist.glob("*.tar.gz"))) as sdist:
        sdist.extractall(tmp_path, filter="data")
    run(
        "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path), cwd=next(tmp_path.iterdir())
    )
    names = [
        set(zipfile.ZipFile(next(where.glob("*.whl"))).namelist()) for where in (dist, tmp_path)
    ]
    assert names[0] == names[1]
