"""docs/http.md: its configuration serves, and its commands answer what it says."""

import re
import subprocess
from pathlib import Path

import yaml

from tests.support.checkout import ROOT
from tests.support.serving import Served, serving

PAGE = (ROOT / "docs" / "http.md").read_text()
URL = "http://127.0.0.1:8480"


def run(served: Served, block: str) -> list[str]:
    """Run a block of the page; returns the lines that it printed."""
    script = "set -euo pipefail\n" + block.replace(URL, served.url)
    done = subprocess.run(["bash", "-c", script], capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().replace("}{", "}\n{").splitlines()


def test_page_says_what_its_commands_do(tmp_path: Path, store_url: str) -> None:
    whole, tokens = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    config = yaml.safe_load(whole)
    assert yaml.safe_load(tokens)["serve"].keys() == {"listen", "tokens", "rate"}
    with serving(tmp_path / "page", store_url, config, tokens=None) as served:
        one, again, many, event = re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)
        said = run(served, one)
        statuses = re.findall(r'"(?:status|state)":"(\w+)"', "\n".join(said))
        changed = ["accepted", "pending", "rescheduled", "cancelled"]
        assert statuses == [*changed, "accepted", "rescheduled"]
        twice = "\n".join(run(served, again))
        assert twice.count("201 Created") == 2
        assert len(set(re.findall(r'"id":"(\w+)"', twice))) == 1
        assert twice.lower().count("idempotency-replayed: true") == 1
        statuses = [re.findall(r'"status":"(\w+)"', line)[0] for line in run(served, many)]
        assert statuses == ["accepted", "refused", "accepted"]
        assert '"id":"/orders|42"' in run(served, event)[0]
