"""The blocks of docs/security.md, as a reader would copy them."""

import re
from pathlib import Path
from typing import Any

import yaml

from tests.support.certificates import Certificates
from tests.support.checkout import ROOT

PAGE = (ROOT / "docs" / "security.md").read_text()
FOLDER = "/etc/duebridge"


def documented(title: str, certificates: Certificates, where: str) -> Any:
    """Return the block that begins with `# title`, with our files and server for the example's."""
    (text,) = re.findall(rf"```yaml\n# {re.escape(title)}\n(.*?)```", PAGE, re.DOTALL)
    text = re.sub(r"[a-z]+\.example:\d+", where, text)
    text = re.sub(r"[\w.]+:kafka_token", "tests.support.tokens:kafka_token", text)
    return yaml.safe_load(text.replace(FOLDER, str(Path(certificates.ca).parent)))


def documented_acl() -> list[str]:
    """Return the words of the user's rule, without `user`, its name, and its password."""
    (text,) = re.findall(r"```\nuser duebridge on >PASSWORD (.*?)```", PAGE, re.DOTALL)
    return str(text).split()
