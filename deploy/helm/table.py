"""The table of values in the chart's README: `python -m deploy.helm.table` rewrites it.

A value is described by the comment above its line in values.yaml and by the one behind it.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

FOLDER = Path(__file__).resolve().parent / "duebridge"
VALUES, README = FOLDER / "values.yaml", FOLDER / "README.md"
BEGIN, END = "<!-- values: of values.yaml, by make api -->\n", "<!-- end of values -->\n"
# Shown whole: what is in them has Kubernetes' own words.
WHOLE = ("resources", "behavior")
LONGEST = 60  # characters of a default; a longer one is to be looked up


class Row(NamedTuple):
    """One value."""

    place: str
    default: str
    text: str


def rows(text: str) -> Iterator[Row]:
    """Yield every value of such a file, in its order."""
    yield from _rows(yaml.compose(text), text.splitlines(), "")


def _rows(block: Any, lines: list[str], above: str) -> Iterator[Row]:
    for key, value in block.value:
        place = f"{above}{key.value}"
        said = _comment(lines, key.start_mark.line)
        is_block = isinstance(value, yaml.MappingNode) and value.value and not value.flow_style
        if is_block and key.value not in WHOLE:
            if said:
                yield Row(place, "", said)
            yield from _rows(value, lines, f"{place}.")
        else:
            yield Row(place, _default(value), said)


def _default(value: Any) -> str:
    found = json.dumps(yaml.safe_load(yaml.serialize(value)))
    return found if len(found) <= LONGEST else "see values.yaml"


def _comment(lines: list[str], at: int) -> str:
    """Return the comment above a line, up to a blank line or another value, and that behind it."""
    first = at
    while first and lines[first - 1].lstrip().startswith("#"):
        first -= 1
    above = [line.strip().lstrip("# ") for line in lines[first:at]]
    _, _, behind = lines[at].partition(" #")
    return " ".join([*above, behind.strip()]).strip()


def table(text: str) -> str:
    """Return the table in Markdown."""
    lines = ["| value | default | |", "|---|---|---|"]
    for row in rows(text):
        default = f"`{row.default}`" if row.default else ""
        said = re.sub(r"([|<])", r"\\\1", row.text)
        lines.append(f"| `{row.place}` | {default} | {said} |")
    return "\n".join(lines) + "\n"


def filled(page: str) -> str:
    """Return the README with the table of the values as they are; raises ValueError."""
    if page.count(BEGIN) != 1 or page.count(END) != 1:
        raise ValueError(f"README.md: expected one line {BEGIN.strip()} and one {END.strip()}")
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n{table(VALUES.read_text('utf-8'))}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    README.write_text(filled(README.read_text("utf-8")), "utf-8")
