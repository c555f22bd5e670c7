"""Writes docs/python-api.md from the signatures and docstrings of the public names.

It reads the sources, so that the page does not depend on the Python version: `python
deploy/docs/api.py` writes the page, `--check` exits 1 if it is out of date.
"""

import ast
import inspect
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from textwrap import dedent, indent

import duebridge
from duebridge.envelope import EnvelopeFields

PAGE = Path(__file__).parents[2] / "docs" / "python-api.md"
WIDTH = 100
HEAD = """\
# Python API

Generated from the docstrings by `make api`; do not edit. The classes and errors here are
importable from `duebridge`, the types that signatures name are for reading only; other modules are
internal and may change. Instants are epoch milliseconds (`..._ms`), durations text such as `"15m"`
or a `timedelta`.
"""
NAMED = {  # what signatures name and is not importable from `duebridge`, by module
    "duebridge.envelope": ("BodyGiven", "HeaderValue", "Headers", "HeadersGiven"),
    "duebridge.store.wire.replies": ("CancelAnswer", "MoveAnswer", "State"),
    "duebridge.producer": ("OnConflict",),
    "duebridge.receipt": ("KnownState", "ReceiptStatus"),
    "duebridge.async_producer": ("THREADS",),
}
INTERNAL = {"Known.of", "Producer.__init__", "StoreError.about"}
Function = ast.FunctionDef | ast.AsyncFunctionDef


def page() -> str:
    """Return the page."""
    public = [source_of(getattr(duebridge, name)) for name in duebridge.__all__]
    errors = [node for node in public if is_error(node)]
    values = [node for node in public if not is_error(node)]
    parts = [HEAD, *map(section, values)]
    parts += [section(source_of(EnvelopeFields)), named()]
    parts += ["## Errors", *(section(node, "###") for node in errors)]
    if gone := INTERNAL - {name for node in public for name in method_names(node)}:
        raise SystemExit(f"INTERNAL: expected methods of public classes; got {sorted(gone)}")
    return "\n\n".join(part.strip() for part in parts) + "\n"


def method_names(node: ast.ClassDef) -> Iterator[str]:
    """Yield the names of a class's methods, as INTERNAL has them."""
    methods_of = (method for method in node.body if isinstance(method, Function))
    yield from (f"{node.name}.{method.name}" for method in methods_of)


def named() -> str:
    """Return the section of the aliases and defaults that signatures name."""
    lines = [line for name, names in NAMED.items() for line in assignments(name, names)]
    return "## Types and defaults\n\n```python\n" + "\n".join(lines) + "\n```"


def assignments(module: str, names: tuple[str, ...]) -> Iterator[str]:
    """Yield what a module assigns to these names: `NAME = VALUE`."""
    source = inspect.getsource(import_module(module))
    for statement in ast.parse(source).body:
        target = getattr(statement, "target", None) or getattr(statement, "targets", [None])[0]
        if isinstance(target, ast.Name) and target.id in names:
            yield f"{target.id} = {ast.get_source_segment(source, statement.value)}"


def source_of(kind: type) -> ast.ClassDef:
    """Return the source of a class."""
    source = Path(inspect.getsourcefile(kind) or "")
    found = (node for node in ast.parse(source.read_text()).body if isinstance(node, ast.ClassDef))
    return next(node for node in found if node.name == kind.__name__)


def is_error(node: ast.ClassDef) -> bool:
    """Whether a public class is an exception."""
    return issubclass(getattr(duebridge, node.name), Exception)


def section(node: ast.ClassDef, mark: str = "##") -> str:
    """Return what is known of a class: bases, docstring, fields, methods."""
    bases = ", ".join(ast.unparse(base) for base in node.bases if "Struct" not in ast.unparse(base))
    title = f"{mark} {node.name}" + (f" ({bases})" if bases else "")
    return "\n\n".join([title, *documentation(node), *fields(node), *methods(node)])


def documentation(node: ast.ClassDef | Function) -> Iterator[str]:
    """Yield the paragraphs of a docstring; doctests become code blocks."""
    for paragraph in filter(None, (ast.get_docstring(node) or "").split("\n\n")):
        is_code = paragraph.startswith(">>>")
        yield f"```python\n{paragraph}\n```" if is_code else dedent(paragraph)


def fields(node: ast.ClassDef) -> Iterator[str]:
    """Yield the block of a class's public fields."""
    lines = [
        code(statement)
        for statement in node.body
        if isinstance(statement, ast.AnnAssign) and not ast.unparse(statement).startswith("_")
    ]
    if lines:
        yield "```python\n" + "\n".join(lines) + "\n```"


def methods(node: ast.ClassDef) -> Iterator[str]:
    """Yield the heading, signature and docstring of each public method."""
    for method in node.body:
        is_new = isinstance(method, Function) and method.name == "__init__"
        if not isinstance(method, Function) or f"{node.name}.{method.name}" in INTERNAL:
            continue
        if is_new or not method.name.startswith("_"):
            yield f"#### `{node.name}{'' if is_new else '.' + method.name}`"
            yield f"```python\n{signature(node.name if is_new else method.name, method)}\n```"
            yield from documentation(method)


def signature(name: str, method: Function) -> str:
    """Return the signature, on one line if it fits, else a parameter a line."""
    result = f" -> {ast.unparse(method.returns)}" if method.returns else ""
    if is_property(method):
        return f"{name}{result.replace(' ->', ':')}"
    if method.name == "__init__":
        begin, result = "", ""
    else:
        begin = "async def " if isinstance(method, ast.AsyncFunctionDef) else "def "
    line = f"{begin}{name}({', '.join(parameters(method))}){result}"
    if len(line) <= WIDTH:
        return line
    lines = indent(",\n".join(parameters(method)), "    ")
    return f"{begin}{name}(\n{lines},\n){result}"


def is_property(method: Function) -> bool:
    """Whether a method is a property."""
    return any(ast.unparse(decorator) == "property" for decorator in method.decorator_list)


def parameters(method: Function) -> Iterator[str]:
    """Yield the parameters of a method, without self or cls."""
    arguments = method.args
    positional = (arguments.posonlyargs + arguments.args)[1:]
    defaults = [None] * (len(positional) - len(arguments.defaults)) + list(arguments.defaults)
    yield from (parameter(*pair) for pair in zip(positional, defaults, strict=True))
    if arguments.kwonlyargs:
        yield "*"
    pairs = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    yield from (parameter(*pair) for pair in pairs)
    if arguments.kwarg:
        yield f"**{ast.unparse(arguments.kwarg)}"


def parameter(argument: ast.arg, default: ast.expr | None) -> str:
    """Return a parameter with its annotation and its default."""
    return ast.unparse(argument) + (f" = {code(default)}" if default else "")


def code(node: ast.AST) -> str:
    """Return source as ruff formats it."""
    return ast.unparse(node).replace("'", '"')


def main() -> int:
    """Write the page, or with --check compare it."""
    if "--check" in sys.argv[1:]:
        return int(PAGE.read_text() != page())
    PAGE.write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
