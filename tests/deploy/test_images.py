"""What the images start with: an init, so that a SIGTERM ends a program that still starts."""

import json
import re
import shutil
import signal
import subprocess
import sys

import pytest

from tests.deploy.cluster.images import ENTRYPOINTS, INIT, RECIPES
from tests.support.checkout import ROOT

# Handles no signal, as Python that still starts, and never ends by itself.
DEAF = "import signal; print(1, flush=True); signal.pause()"
# Runs its words as the first process of a namespace (which root may make, and others that make one
# of users with it), sends SIGTERM once they print something.
FIRST = """
import ctypes, os, signal, sys
if ctypes.CDLL(None, use_errno=True).unshare(0x30000000 if os.geteuid() else 0x20000000):
    sys.exit("not allowed: " + os.strerror(ctypes.get_errno()))
reading, writing = os.pipe()
first = os.fork()
if not first:
    os.dup2(writing, 1)
    os.execv(sys.argv[1], sys.argv[1:])
signal.signal(signal.SIGALRM, lambda *_: os.kill(first, signal.SIGKILL))
signal.alarm(20)
os.read(reading, 1)
os.kill(first, signal.SIGTERM)
print(os.waitstatus_to_exitcode(os.waitpid(first, 0)[1]))
"""


@pytest.mark.parametrize("image", ENTRYPOINTS)
def test_image_starts_with_the_init_in_its_recipe_and_as_the_tests_build_it(image: str) -> None:
    recipe = (RECIPES / f"{image}.Dockerfile").read_text("utf-8")
    [entry] = re.findall(r"^ENTRYPOINT (.*)$", recipe, re.MULTILINE)
    assert " ".join(json.loads(entry)) == ENTRYPOINTS[image]
    assert ENTRYPOINTS[image].startswith(INIT)
    assert re.search(r"--no-install-recommends[^&]*\btini\b", recipe)


def tini() -> str:
    """Return the program, fetched if it is not installed; skips where it cannot be fetched."""
    if found := shutil.which("tini"):
        return found
    fetch = [sys.executable, str(ROOT / "deploy" / "local" / "downloads.py"), "tini"]
    done = subprocess.run(fetch, capture_output=True, text=True, check=False)
    return done.stdout.strip() or pytest.skip(f"tini is missing: {done.stderr}")


def test_stop_of_a_program_that_handles_no_signal_yet_ends_it_under_the_init() -> None:
    words = [tini(), *INIT.split()[1:], sys.executable, "-c", DEAF]
    first = [sys.executable, "-c", FIRST, *words]
    done = subprocess.run(first, capture_output=True, text=True, timeout=30, check=False)
    if done.stderr.startswith("not allowed"):
        pytest.skip(f"a namespace of processes is {done.stderr}")
    assert done.stdout.strip() == str(128 + signal.SIGTERM), done.stderr
