#!/usr/bin/env python3
"""Fills the guides' blocks with the programs of examples/, which the tests run: `make api`.

A fenced block follows each of these lines of a page; `--check` only tells whether it is up to date.

    <!-- file: PATH -->           the whole file
    <!-- file: PATH NAME -->      of it the indented block or function whose first line has NAME
    <!-- changed: FOLDER FILE --> the lines that differ between FOLDER/before and FOLDER/after
"""

import re
import sys
from difflib import unified_diff
from pathlib import Path
from textwrap import dedent, indent

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(
    r"^( *)<!-- (file|changed): (\S+)(?: ([^\n]+?))? -->\n *```(\w+)\n.*?^ *```$",
    re.MULTILINE | re.DOTALL,
)


def _part(text: str, name: str) -> str:
    """Return from the line with a name to the end of its block, by indentation."""
    lines = text.splitlines(keepends=True)
    first = next((at for at, line in enumerate(lines) if name in line), None)
    if first is None:
        raise SystemExit(f"no line has {name}")
    margin = _margin(lines[first])
    found = lines[first : first + 1]
    for line in lines[first + 1 :]:
        is_outside = bool(line.strip()) and _margin(line) <= margin
        if is_outside and not _is_annotation(found[-1]):
            found += [line] if line.strip() in ("}", ")") else []
            break
        found.append(line)
    return dedent("".join(found)).rstrip() + "\n"


def _margin(line: str) -> int:
    return len(line) - len(line.lstrip())


def _is_annotation(line: str) -> bool:
    return line.lstrip().startswith("@")


def _changed(folder: Path, name: str) -> str:
    before, after = ((folder / which / name).read_text() for which in ("before", "after"))
    _, _, *lines = unified_diff(before.splitlines(), after.splitlines(), n=0)
    changed = [f"{line[0]} {line[1:].strip()}" for line in lines if line[0] in "-+"]
    return "\n".join(changed) + "\n"


def _block(match: re.Match[str]) -> str:
    margin, kind, where, name, language = match.groups()
    path = ROOT / where
    if kind == "changed":
        text = _changed(path, name)
    else:
        text = _part(path.read_text(), name) if name else path.read_text()
    head = match[0].split("\n", 1)[0]
    return f"{head}\n" + indent(f"```{language}\n{text}```", margin)


def filled(page: str) -> str:
    """Return a page with its blocks as the examples are now."""
    return BLOCK.sub(_block, page)


def main() -> int:
    """Fill the pages, or with --check say which are out of date; returns the exit code."""
    stale = 0
    for path in sorted((ROOT / "docs").glob("*.md")):
        text = path.read_text()
        if (new := filled(text)) == text:
            continue
        if "--check" in sys.argv[1:]:
            sys.stdout.write(f"{path.relative_to(ROOT)} is not what examples/ are: make api\n")
            stale = 1
        else:
            path.write_text(new)
    return stale


if __name__ == "__main__":
    sys.exit(main())
