"""Parses YAML into plain values with line and column.

Only plain YAML is accepted: one document, no aliases, anchors, tags or repeated keys. Words are
text unless they are numbers, `true`, `false` or `null`: `on`, `no`, `1_000` and `12:30` are text.
References are resolved, except those of the store's url and of brokers.
"""

import re
from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import NamedTuple, Protocol

import yaml
from yaml.error import MarkedYAMLError
from yaml.events import (
    AliasEvent,
    CollectionEndEvent,
    CollectionStartEvent,
    DocumentStartEvent,
    Event,
    NodeEvent,
)
from yaml.nodes import MappingNode, Node, ScalarNode
from yaml.reader import ReaderError

from duebridge.config.secrets import KeyPath, check_references, resolve
from duebridge.errors import ConfigError, ConfigFileError
from duebridge.values import is_utf8

MAX_DEPTH = 20
_INDENTED_BY_TAB = re.compile(r"^ *\t", re.MULTILINE)
_PLAIN = re.compile(r"[A-Za-z0-9_.-]+")
_WHOLE_NUMBER = re.compile(r"[+-]?(?:0|[1-9][0-9]{0,17})")
_DECIMAL = re.compile(r"[+-]?[0-9]{1,18}\.[0-9]{0,18}")
_WORDS = {"": None, "~": None, "null": None, "true": True, "false": False}


class _Mark(Protocol):
    line: int
    column: int


class TextPosition(NamedTuple):
    """A line and a column, both from 1."""

    line: int
    column: int


class Fault(NamedTuple):
    """One line of an error: a position in the file and a message."""

    at: TextPosition
    path: KeyPath
    text: str
    file: str

    def __str__(self) -> str:
        path = ".".join(_key(key) for key in self.path)
        return f"{self.file}:{self.at.line}:{self.at.column} {path}{': ' * bool(path)}{self.text}"


def error_of(faults: Iterable[Fault]) -> ConfigFileError:
    """Return one error with a line for each fault, in the order of the file."""
    return ConfigFileError("\n".join(str(fault) for fault in sorted(faults, key=attrgetter("at"))))


class YamlNode(NamedTuple):
    """A value as written, and the positions of the value and its key."""

    written: object
    key: TextPosition
    at: TextPosition


class Tree:
    """The plain values of a file with their positions; `faults` holds faults of single values."""

    def __init__(self, file: str, root: Node) -> None:
        self.file = file
        self.places: dict[KeyPath, YamlNode] = {}
        self.faults: list[Fault] = []
        self.value = self._value(root, (), _position(root.start_mark))

    def _value(self, node: Node, path: KeyPath, key: TextPosition) -> object:
        if isinstance(node, ScalarNode):
            return self._scalar(node, path, key)
        # Report a block at its key: the block itself starts at its first entry.
        if isinstance(node, MappingNode):
            self.places[path] = YamlNode({}, key, key)
            return self._mapping(node, path)
        self.places[path] = YamlNode([], key, key)
        children = enumerate(node.value)
        return [
            self._value(child, (*path, place), _position(child.start_mark))
            for place, child in children
        ]

    def _mapping(self, node: MappingNode, path: KeyPath) -> dict[str, object]:
        values: dict[str, object] = {}
        for key, child in node.value:
            at = _position(key.start_mark)
            if not isinstance(key, ScalarNode):
                self._refuse(at, path, f"expected a key; got {kind_of(key.value)}")
            elif key.value in values:
                first = self.places[*path, key.value].key.line
                self._refuse(at, (*path, key.value), f"key given twice, first in line {first}")
            elif not is_utf8(key.value):
                self._refuse(at, path, "expected Unicode text as a key")
            else:
                values[key.value] = self._value(child, (*path, key.value), at)
        return values

    def _scalar(self, node: ScalarNode, path: KeyPath, key: TextPosition) -> object:
        value = _plain(node.value) if node.style is None else node.value
        at = _position(node.start_mark)
        self.places[path] = YamlNode(value, key, at)
        if not isinstance(value, str):
            return value
        try:
            if not is_utf8(value):
                raise ConfigError("expected Unicode text")
            if _is_resolved_later(path):
                check_references(value)
                return value
            return resolve(value)
        except ConfigError as error:
            self._refuse(at, path, str(error))
            return value

    def fault(self, path: KeyPath, text: str, *, is_of_key: bool = False) -> Fault:
        """Return a fault located at a value, at its key, or at the parent of a missing key."""
        nearest = path
        while nearest not in self.places:
            nearest = nearest[:-1]
        place = self.places[nearest]
        at = place.key if is_of_key or nearest != path else place.at
        return Fault(at, path, text, self.file)

    def value_at(self, path: Iterable[object]) -> object:
        """Return the value at a path; None if absent."""
        found = self.value
        for key in path:
            found = found.get(key) if isinstance(found, dict) else _item(found, key)
        return found

    def written(self, path: KeyPath) -> object:
        """Return a value as written; None if absent."""
        return self.places[path].written if path in self.places else None

    def _refuse(self, at: TextPosition, path: KeyPath, text: str) -> None:
        self.faults.append(Fault(at, path, text, self.file))


def _item(value: object, place: object) -> object:
    if isinstance(value, list) and isinstance(place, int) and place < len(value):
        return value[place]
    return None


def read_tree(text: str, file: str) -> Tree:
    """Return the tree of a text; raises `ConfigError` if it is not plain YAML."""
    try:
        faults = list(_uncommon(yaml.parse(text, Loader=yaml.BaseLoader), file))
        root = None if faults else yaml.compose(text, Loader=yaml.BaseLoader)
    except (yaml.YAMLError, ValueError, OverflowError) as error:  # the last two: "\UFFFFFFFF"
        raise ConfigFileError(str(_syntax_fault(error, text, file))) from None
    if faults:
        raise error_of(faults)
    if root is None or (isinstance(root, ScalarNode) and _plain(root.value) is None):
        raise ConfigFileError(f"{file}:1:1 empty: expected at least version, brokers and routes")
    return Tree(file, root)


def _uncommon(events: Iterator[Event], file: str) -> Iterator[Fault]:
    depth = documents = 0
    for event in events:
        depth += isinstance(event, CollectionStartEvent) - isinstance(event, CollectionEndEvent)
        documents += isinstance(event, DocumentStartEvent)
        at = _position(event.start_mark)
        if documents > 1:
            yield Fault(at, (), "expected one document; got another", file)
            return
        if depth > MAX_DEPTH:
            yield Fault(at, (), f"expected at most {MAX_DEPTH} levels; got more", file)
            return
        if unwanted := _unwanted(event):
            yield Fault(at, (), f"{unwanted}: not taken, write the value itself", file)


def _unwanted(event: Event) -> str | None:
    if isinstance(event, AliasEvent):
        return "alias"
    if not isinstance(event, NodeEvent):
        return None
    if event.anchor:
        return "anchor"
    return "tag" if getattr(event, "tag", None) else None


def _syntax_fault(error: Exception, text: str, file: str) -> Fault:
    if isinstance(error, ReaderError):
        found = f"expected text; got character {error.character:#06x}"
        return Fault(position_of(text, error.position), (), found, file)
    if not isinstance(error, MarkedYAMLError) or error.problem_mark is None:
        return Fault(TextPosition(1, 1), (), "YAML: an escape stands for no character", file)
    at, problem = _position(error.problem_mark), str(error.problem)
    tab = _INDENTED_BY_TAB.search(text)
    if "'\\t'" in problem:
        return Fault(at, (), "tabs: expected spaces", file)
    if tab and (found_at := position_of(text, tab.end() - 1)).line <= at.line:
        return Fault(found_at, (), "tabs: expected spaces", file)
    if error.context and error.context_mark:
        problem += f" ({error.context}, line {error.context_mark.line + 1})"
    return Fault(at, (), f"YAML: {problem}", file)


def kind_of(value: object) -> str:
    """Return the kind of a value in the words of YAML."""
    if value is None:
        return "nothing"
    kinds = {bool: "true or false", str: "text", list: "a list", dict: "a mapping"}
    return kinds.get(type(value), "a number")


def shown(value: object) -> str:
    """Return a value for a message, short and on one line."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | dict) or value is None:
        return kind_of(value)
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:76]}...{text[-1]}"


def _plain(text: str) -> object:
    if text in _WORDS:
        return _WORDS[text]
    if _WHOLE_NUMBER.fullmatch(text):
        return int(text)
    return float(text) if _DECIMAL.fullmatch(text) else text


def _is_resolved_later(path: KeyPath) -> bool:
    """Return whether references are resolved later: at use, or by the broker's model."""
    if path[:1] == ("routes",):
        return path[2:4] == ("cold_tier", "options")
    return path[:1] == ("brokers",) or path in (("store", "url"), ("serve", "tokens"))


def _key(key: str | int) -> str:
    return str(key) if _PLAIN.fullmatch(str(key)) else shown(key)


def _position(mark: _Mark | None) -> TextPosition:
    if mark is None:  # only for synthesized nodes
        return TextPosition(1, 1)
    return TextPosition(mark.line + 1, mark.column + 1)


def position_of(text: str, index: int) -> TextPosition:
    """Return the position of the character of this index."""
    before = text[:index]
    return TextPosition(before.count("\n") + 1, len(before) - before.rfind("\n"))
