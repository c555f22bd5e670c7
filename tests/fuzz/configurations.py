"""Configurations: a whole one, then nodes dropped, doubled, moved, wrapped or made odd, then bytes.

It holds secrets in three ways: SECRET by references where secrets belong, PLAIN by references
anywhere, and LITERAL in the file itself where it may stand.
"""

from copy import deepcopy
from pathlib import Path
from typing import NamedTuple

from hypothesis import strategies as st

SECRET, PLAIN, LITERAL = "Canary-s3cr3t", "Canary pl4in!", "Canary-l1teral"  # no name has a blank
VARIABLE, PLAIN_VARIABLE = "FUZZ_SECRET", "FUZZ_PLAIN"


class Map(list[tuple[str, "Node"]]):
    """A mapping, which may have a key twice."""


class Seq(list["Node"]):
    """A list."""


Node = Map | Seq | str


class Document(NamedTuple):
    """A file, and whether each secret in it is still where one may be."""

    data: bytes
    is_in_place: bool

    def __repr__(self) -> str:
        return f"Document({self.data[:4000]!r})"


def mapping(**pairs: Node) -> Map:
    return Map((name.replace("__", "."), node) for name, node in pairs.items())


def whole(secret_file: Path) -> Map:
    """A configuration with everything in it."""
    by_variable, by_file = f'"${{{VARIABLE}}}"', f'"${{file:{secret_file}}}"'
    kafka = mapping(
        type="kafka",
        bootstrap_servers=Seq(["'localhost:9092'", f"'SASL://u:{LITERAL}@h:9092'", by_variable]),
        client="kafka-python",
        options=mapping(compression__type="zstd", sasl__password=by_file, retries="3"),
    )
    rabbitmq = mapping(
        type="rabbitmq",
        url=f'"amqps://u:{LITERAL}@h/${{{VARIABLE}}}"',
        options=mapping(
            heartbeat="30",
            ssl_options=mapping(cafile="/ca.pem", password=LITERAL, keyfile=by_variable),
        ),
    )
    retry = mapping(max_attempts="8", backoff="exponential", initial="1s", max="5m", jitter="none")
    route = mapping(
        target=mapping(broker="orders", topic="order-timeouts"),
        dead_letter=mapping(broker="billing", exchange='""', routing_key="dunning.dead"),
        allow_targets=Seq([mapping(broker="orders", topic="'order-*'")]),
        retry=retry,
        on_target_error=mapping(hold="10m", then="dead_letter"),
        shards="4",
    )
    return mapping(
        version="1",
        store=mapping(url=f'"redis://:{LITERAL}@h:1/${{{VARIABLE}:-0}}"', namespace="duebridge"),
        brokers=mapping(orders=kafka, billing=rabbitmq, here=mapping(type="memory")),
        worker=mapping(in_flight="5000", in_flight_bytes="64MiB", publish_deadline="15s"),
        defaults=mapping(lease="30s", max_body="256KiB", remember="0ms", poison="5"),
        routes=mapping(r=route, s=mapping(target=mapping(broker="here", topic="t"))),
        allow_absent=Seq(["old-route"]),
    )


def small(root: Map, broker: str, sections: set[str]) -> Map:
    """Of a whole configuration the route to memory, one more broker, and some sections."""
    keep = {"brokers": {broker, "here"}, "routes": {"s"}}
    return Map(
        (name, Map(pair for pair in node if pair[0] in keep.get(name, {pair[0]})))
        if isinstance(node, Map)
        else (name, node)
        for name, node in root
        if name in sections | {"version", "brokers", "routes"}
    )


_ODD_WORDS = [
    "$", "$$", "${", "${}", "${NOT_SET_AT_ALL}", "${file:/nowhere/at/all}", "${file:/}",
    "${file:/dev/null}", "~", "null", "true", "on", ".inf", ".nan", "0x1F", "1e999", "-0", "007",
    "1_000", "12:30", "2026-01-01", "1.5", "-1", "1s", "-1s", "1y", "0ms", "999999999999999999d",
    "9999999GiB", "''", '""', '"\\ud800"', '"\\UFFFFFFFF"', '"\\0"', '"\\x07"', '"\\x85"', "&a x",
    "*a", "&a [*a]", "!!python/name:os.system", "!!binary AAAA", "!!set {a}", "!local x", "<<",
    "? x", "- x", "[", "{", "]", "}", "'", '"', "`", "@x", "%x", "#x", ": ", "a: b: c", "| ", "> ",
    "../../etc/passwd", "order*", "ünïcode", "\u202ertl", "\ufeffbom", "\u2028",
]  # fmt: skip
_references = st.sampled_from([f"${{{PLAIN_VARIABLE}}}", f"'x${{{PLAIN_VARIABLE}}}y'"])
_odd_scalars = st.one_of(
    _references,
    st.sampled_from(_ODD_WORDS),
    st.sampled_from(["9" * 19, "9" * 5000, "-" + "9" * 400, "x" * 70_000, "1." + "0" * 99]),
    st.text(max_size=12),
    st.integers(-(2**70), 2**70).map(str),
)
_odd_nodes = st.one_of(
    _odd_scalars,
    st.just(Seq()),
    st.just(Map()),
    st.lists(_odd_scalars, max_size=3).map(Seq),
    st.lists(st.tuples(_odd_scalars, _odd_scalars), max_size=3).map(Map),
    st.integers(1, 60).map(lambda depth: "[" * depth + "]" * depth),
    st.integers(1, 60).map(lambda depth: "{a: " * depth + "}" * depth),
)
_SECTIONS = st.sampled_from(["store", "worker", "defaults", "allow_absent"])
_odd_keys = st.one_of(
    st.sampled_from(
        ["topc", "url", "options", "name", "type", "retry", "routes", "[a]", "{a: b}", "~", "1"]
    ),
    _odd_scalars,
)


def collections(node: Node) -> list[Map | Seq]:
    """Every mapping and list of a node, itself included."""
    if isinstance(node, str):
        return []
    inner = [child for _, child in node] if isinstance(node, Map) else node
    return [node, *(found for child in inner for found in collections(child))]


def has_secret(node: Node) -> bool:
    return any(each in written(node) for each in (LITERAL, VARIABLE, "${file:"))


def written(node: Node) -> str:
    """A node in flow style."""
    if isinstance(node, Map):
        return "{" + ", ".join(f"{key}: {written(child)}" for key, child in node) + "}"
    if isinstance(node, Seq):
        return "[" + ", ".join(map(written, node)) + "]"
    return node


def block(node: Node, indent: str = "") -> str:
    """A node in block style, its inner lists in flow style."""
    if not isinstance(node, Map) or not node:
        return f"{written(node)}\n"
    lines = "".join(
        f"{indent}{key}:{'' if starts_block(child) else ' '}{block(child, indent + '  ')}"
        for key, child in node
    )
    return lines if not indent else f"\n{lines}"


def starts_block(node: Node) -> bool:
    return isinstance(node, Map) and bool(node)


class Changes:
    """What is done to a configuration; each changes one place of it."""

    def __init__(self, draw: st.DrawFn, root: Map) -> None:
        self._draw = draw
        self._root = root
        self.is_in_place = True

    def make(self) -> None:
        ways = [self._replace, self._replace, self._refer, self._drop, self._double, self._rename]
        change = self._draw(st.sampled_from(ways))
        if full := [each for each in collections(self._root) if each]:  # else all was dropped
            at = self._one_of(full)
            change(at, self._draw(st.integers(0, len(at) - 1)))

    def _one_of(self, found: list[Map | Seq]) -> Map | Seq:
        return found[self._draw(st.integers(0, len(found) - 1))]

    def _replace(self, at: Map | Seq, place: int) -> None:
        self._put(at, place, deepcopy(self._draw(_odd_nodes)))

    def _refer(self, at: Map | Seq, place: int) -> None:
        self._put(at, place, self._draw(_references))

    def _drop(self, at: Map | Seq, place: int) -> None:
        del at[place]

    def _double(self, at: Map | Seq, place: int) -> None:
        """Put what is at one place beside another, under the same key or none."""
        other = self._one_of(collections(self._root))
        item = deepcopy(at[place])
        node = item[1] if isinstance(item, tuple) else item
        self.is_in_place &= other is at or not has_secret(node)
        if isinstance(other, Map):
            other.append(item if isinstance(item, tuple) else ("odd", item))
        else:
            other.append(node)

    def _rename(self, at: Map | Seq, place: int) -> None:
        item = at[place]
        if isinstance(at, Map) and isinstance(item, tuple):
            self.is_in_place &= not has_secret(item[1])
            at[place] = (self._draw(_odd_keys), item[1])

    @staticmethod
    def _put(at: Map | Seq, place: int, node: Node) -> None:
        if isinstance(at, Map):
            at[place] = (at[place][0], node)
        else:
            at[place] = node


_LAUGHS = "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join([f'*{chr(97 + n)}'] * 9)}]\n" for n in range(8)
)
_WEDGES = [
    "\ufeff", "\0", "\t", "\r", "\n", "\n---\n", "\n...\n", "%YAML 9.9\n", "#", "&a ", "*a", "!!",
    "? ", "${", "}", "'", '"', "{", "[", ":", ",", "|\n", ">-\n", "a: &a [*a]\n",
    f"a: &a [x]\n{_LAUGHS}",
    "\U0001f600", "\x1b[31m", "x: 1\n" * 300, "[" * 3000, "{a: " * 3000, "- " * 3000, "\n" * 2000,
]  # fmt: skip


@st.composite
def _damaged(draw: st.DrawFn, text: str) -> bytes:
    """A text with something put in or cut out, in an encoding that need not be ours."""
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(text)))
        cut = draw(st.sampled_from([0, 0, 1, 5, 10**6]))
        text = text[:at] + draw(st.sampled_from(_WEDGES)) + text[at + cut :]
    data = text.encode(draw(st.sampled_from(["utf-8"] * 9 + ["utf-8-sig", "utf-16", "utf-32-be"])))
    at = draw(st.integers(0, len(data)))
    return (
        data[:at]
        + draw(st.sampled_from([b""] * 5 + [b"\xff", b"\xc3", b"\xed\xa0\x80"]))
        + data[at:]
    )


@st.composite
def documents(draw: st.DrawFn, secret_file: Path) -> Document:
    """A configuration after at most four changes, and sometimes damage to its text."""
    root = whole(secret_file)
    if draw(st.booleans()):  # a small one is read sooner, and more of it is changed
        root = small(root, draw(st.sampled_from(["orders", "billing"])), draw(st.sets(_SECTIONS)))
    changes = Changes(draw, root)
    for _ in range(draw(st.integers(0, 4))):
        changes.make()
    text = block(root) if draw(st.booleans()) else written(root)
    if draw(st.integers(0, 3)) == 0:
        return Document(draw(_damaged(text)), is_in_place=False)
    return Document(text.encode(errors="surrogatepass"), changes.is_in_place)
