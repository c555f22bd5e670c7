"""The wheel holds everything: the scripts are found where it is installed, not in this checkout."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
from pathlib import Path
import lua
from duebridge.store.scripts import names, script
assert Path(lua.__file__).is_relative_to({where!r}), lua.__file__
assert all(len(script(name).sha) == 40 for name in names())
print(len(names()))
"""


def test_install_wheel_elsewhere_finds_every_script(tmp_path: Path) -> None:
    where = tmp_path / "elsewhere"
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    wheel = next(tmp_path.glob("duebridge-*.whl"))
    install = [sys.executable, "-m", "pip", "install", "--no-deps", "--target", str(where)]
    subprocess.run([*install, str(wheel)], check=True, capture_output=True)
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(where=str(where))],
        cwd=tmp_path,
        env={"PYTHONPATH": str(where)},
        check=True,
        capture_output=True,
        text=True,
    )
    assert int(found.stdout) == len(list((ROOT / "lua").glob("*.lua")))
