"""Edits of code for the mutants: Python by its syntax tree, scripts by their text."""

import ast
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


class Stale(Exception):
    """The code that an edit changes is not there, or is there twice."""


class Edit(ABC):
    """A change of one file of a checkout."""

    @abstractmethod
    def changed(self, tree: Path) -> tuple[Path, str]:
        """Return the file, and what it says once it is changed; raises `Stale`."""

    def apply(self, tree: Path) -> None:
        """Change the file; raises `Stale`."""
        path, text = self.changed(tree)
        path.write_text(text)


@dataclass(frozen=True)
class CodeEdit(Edit):
    """Replaces every node of a function that reads `old`: an expression, or a statement.

    `function` is qualified by its class: `Deliverer.ack`.
    """

    module: str
    function: str
    old: str
    new: str

    def changed(self, tree: Path) -> tuple[Path, str]:
        """Return the module, and its code without comments; raises `Stale`."""
        path = tree / self.module
        module = ast.parse(path.read_text())
        replacement = _Replacement(self.old, self.new)
        replacement.visit(_found(module.body, self.function.split(".")))
        if not replacement.count:
            raise Stale(f"{self.function} of {self.module} has no {self.old!r}")
        return path, ast.unparse(ast.fix_missing_locations(module))


@dataclass(frozen=True)
class ScriptEdit(Edit):
    """Replaces the text that one Lua script has once, whatever its spaces and lines.

    `script` names the file where several have the text.
    """

    old: str
    new: str
    script: str = ""

    def changed(self, tree: Path) -> tuple[Path, str]:
        """Return the script, and its text; raises `Stale`."""
        pattern = re.compile(r"\s+".join(map(re.escape, self.old.split())))
        paths = [path for path in tree.glob("lua/**/*.lua") if path.name.endswith(self.script)]
        found = [path for path in paths if pattern.search(path.read_text())]
        if len(found) != 1 or len(pattern.findall(found[0].read_text())) != 1:
            raise Stale(f"{[path.name for path in found]} have {self.old!r}")
        return found[0], pattern.sub(lambda _: self.new, found[0].read_text())


class _Replacement(ast.NodeTransformer):
    """Replaces the nodes that read like a text; counts them."""

    def __init__(self, old: str, new: str) -> None:
        self.count = 0
        self._new = new
        [statement] = ast.parse(old).body
        self._old = ast.dump(statement.value if isinstance(statement, ast.Expr) else statement)

    def visit(self, node: ast.AST) -> ast.AST | list[ast.AST]:
        """Return the node, or what replaces it."""
        if ast.dump(node) != self._old:
            visited: ast.AST = super().visit(node)
            return visited
        self.count += 1
        if isinstance(node, ast.stmt):
            return [*ast.parse(self._new).body]
        return ast.parse(self._new, mode="eval").body


def _found(body: Iterable[ast.stmt], names: list[str]) -> ast.AST:
    """Return the function or class of these names, outermost first; raises `Stale`."""
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == names[0]:
            return _found(node.body, names[1:]) if names[1:] else node
    raise Stale(f"there is no {names[0]}")
