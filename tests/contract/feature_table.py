"""The table of features in connectors/README.md, out of what the connectors' tests declare.

python -m tests.contract.feature_table            print it
python -m tests.contract.feature_table --update   write it into the README
"""

import importlib
import sys
from collections.abc import Iterable
from pathlib import Path

from tests.support.features import Features, meanings

HERE = Path(__file__).resolve().parent
README = HERE.parent.parent / "connectors" / "README.md"
BEGIN = "<!-- features: python -m tests.contract.feature_table --update -->"
END = "<!-- /features -->"


def declared() -> list[Features]:
    """Return what each test_*_publisher.py of this folder declares, by the broker's name."""
    found: dict[str, Features] = {}
    for path in sorted(HERE.glob("test_*_publisher.py")):
        module = importlib.import_module(f"tests.contract.{path.stem}")
        for value in vars(module).values():
            features = getattr(value, "features", None)
            if isinstance(features, Features):
                found[features.broker] = features
    return [found[name] for name in sorted(found)]


def table(all_features: Iterable[Features]) -> str:
    """Return the table in Markdown, one column a broker."""
    columns = list(all_features)
    head = ["", *(features.broker for features in columns)]
    rows = [
        [meaning, *("yes" if getattr(features, name) else "no" for features in columns)]
        for name, meaning in meanings().items()
    ]
    sizes = [["largest body that the tests send, bytes", *(f"{f.largest_body:,}" for f in columns)]]
    return "\n".join(_line(row) for row in [head, ["---"] * len(head), *rows, *sizes])


def readme_with(new_table: str) -> str:
    """Return the README's text with this table between its two marks."""
    before, rest = README.read_text("utf-8").split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{new_table}\n{END}{after}"


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    if "--update" in sys.argv[1:]:
        README.write_text(readme_with(table(declared())), "utf-8")
    else:
        sys.stdout.write(table(declared()) + "\n")
