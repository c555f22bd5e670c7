"""The Lua sources agree with their headers, with the Python methods and with their tests."""

import inspect
import re
from pathlib import Path

import pytest

from duebridge.store.delay_store import DelayStore
from duebridge.store.keys import SHARD_KEYS
from duebridge.store.poll import Poll
from duebridge.store.scripts import names, script
from tests.conftest import ROOT

LUA = ROOT / "lua"
SCRIPTS = sorted(LUA.glob("*.lua"))
SHARED = sorted((LUA / "shared").glob("*.lua"))
READ_ONLY = {"next", "get", "list", "stats"}
FORGETTING = {"forget", "lift"}  # they move no envelope
STANDARD_ARGUMENTS = {1: "clock", 2: "journal"}  # documented where they are used: lua/shared
# Where unpack() is called, and what bounds it: nothing else may.
BOUNDED_UNPACKS = {
    "batch.lua": 5,  # in chunks of CHUNK, and of at most MAX_BATCH fields
    "fetch.lua": 1,  # of ids that a limit has cut
    "journal.lua": 1,  # of at most 8 entries
}

every_script = pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
every_file = pytest.mark.parametrize("path", SCRIPTS + SHARED, ids=lambda path: path.stem)


def header_of(path: Path) -> str:
    """The comment lines at the top."""
    lines = path.read_text().splitlines()
    kept = []
    for line in lines[1:] if lines[0].startswith("#!") else lines:
        if not line.startswith("--"):
            break
        kept.append(line)
    return "\n".join(kept)


def code_of(path: Path) -> str:
    """The source without its comments."""
    return re.sub(r"--.*", "", path.read_text())


def arguments_in(text: str) -> set[int]:
    return {int(number) for number in re.findall(r"ARGV\[(\d+)\]", text)}


def used_arguments(path: Path) -> set[int]:
    """The numbers that the code names, in whichever way it reads them."""
    code = code_of(path)
    return arguments_in(code) | {int(n) for n in re.findall(r"up_to\((\d+)\)", code)}


def documented_arguments(path: Path) -> set[int]:
    return arguments_in(header_of(path))


@every_script
def test_header_begins_with_the_scripts_name(path: Path) -> None:
    assert re.match(rf"-- {path.name}: [a-z].*[.:]", header_of(path))


@every_script
def test_header_says_what_moves_or_that_nothing_does(path: Path) -> None:
    header, shebang = header_of(path), path.read_text().splitlines()[0]
    if path.stem in READ_ONLY:
        assert shebang == "#!lua flags=no-writes"
        assert "Transition" not in header
    elif path.stem in FORGETTING:
        assert "Transition" not in header
    else:
        assert re.search(r"^-- Transition  .* -> ", header, re.MULTILINE)


@every_script
def test_header_says_what_it_returns(path: Path) -> None:
    assert re.search(r"^-- Returns  \S", header_of(path), re.MULTILINE)


@every_script
def test_arguments_used_are_documented_and_those_documented_used(path: Path) -> None:
    documented, used = documented_arguments(path), used_arguments(path)
    assert not used & STANDARD_ARGUMENTS.keys(), "the loader's arguments belong to lua/shared"
    assert used == documented == set(range(3, 3 + len(documented)))
    lists = [int(n) for n in re.findall(r"arguments\((\d+),", code_of(path))]
    assert lists in ([], [1 + max(documented, default=0)]), (
        "a list follows its count, which is last"
    )


@pytest.mark.parametrize(("number", "name"), STANDARD_ARGUMENTS.items())
def test_standard_argument_is_documented_in_the_part_that_reads_it(number: int, name: str) -> None:
    part = LUA / "shared" / f"{name}.lua"
    assert number in arguments_in(header_of(part)) & arguments_in(code_of(part))
    others = [each.name for each in SHARED if arguments_in(code_of(each)) and each != part]
    assert set(others) <= {f"{each}.lua" for each in [*STANDARD_ARGUMENTS.values(), "batch"]}


@every_script
def test_shebang_lets_all_but_schedule_run_when_memory_is_full(path: Path) -> None:
    shebang = path.read_text().splitlines()[0]
    if path.stem == "schedule":
        assert shebang == "#!lua"
    else:
        assert shebang in ("#!lua flags=allow-oom", "#!lua flags=no-writes")


@every_file
def test_commands_are_literal_names(path: Path) -> None:
    code = code_of(path)
    literal = re.findall(r"redis\.call\('[A-Z]+'[,)]", code)
    assert len(literal) == len(re.findall(r"\bredis\.call\b|\bredis\[", code))


@every_file
def test_nothing_catches_an_error_or_runs_text(path: Path) -> None:
    found = re.findall(r"\b(pcall|xpcall|loadstring|load|dofile|setfenv)\b", code_of(path))
    assert found == []


@every_file
def test_nothing_is_compared_with_nil(path: Path) -> None:
    assert re.findall(r"[=~]=\s*nil|nil\s*[=~]=", code_of(path)) == []


@every_file
def test_texts_are_not_ordered_since_that_goes_by_locale(path: Path) -> None:
    text = r"(?:string\.sub\([^()]*\)|six\([^()]*\)|\w+_six|LAYOUT|NEVER|NOBODY)"
    assert re.findall(rf"{text}\s*[<>]|[<>]=?\s*{text}", code_of(path)) == []


@every_file
def test_only_the_clock_reads_the_time(path: Path) -> None:
    has_time = re.search(r"'TIME'|os\.(time|clock)|math\.random", code_of(path)) is not None
    assert has_time == (path.stem == "clock")


@every_file
def test_nothing_decodes_a_body(path: Path) -> None:
    # What schedule unpacks is its own answer to a call that is repeated.
    code = code_of(path).replace("cmsgpack.unpack(before)", "")
    assert re.findall(r"cjson|cmsgpack\.unpack|string\.gsub", code) == []


@every_file
def test_file_is_short_enough_to_be_read_whole(path: Path) -> None:
    lines = path.read_text().splitlines()
    assert len(lines) <= 100
    assert [line for line in lines if len(line) > 110] == []


@every_file
def test_unpack_is_called_where_it_is_bounded_and_nowhere_else(path: Path) -> None:
    calls = re.findall(r"(?<![.\w])unpack\(", code_of(path))
    assert len(calls) == BOUNDED_UNPACKS.get(path.name, 0)


def test_chunk_and_batch_stay_far_below_the_limit_of_unpack() -> None:
    code = code_of(LUA / "shared" / "batch.lua")
    limits = dict(re.findall(r"local (CHUNK|MAX_BATCH) = (\d+)", code))
    assert {name: int(value) for name, value in limits.items()} == {
        "CHUNK": 2000,
        "MAX_BATCH": 1000,
    }
    assert int(limits["CHUNK"]) % 2 == 0, "a chunk must not part a pair"


def test_only_promote_release_and_reclaim_write_ready() -> None:
    writes = r"(?:zadd\(|'ZADD', )(?:READY|SUSPECT|key)\b"
    writers = {path.stem for path in SCRIPTS + SHARED if re.search(writes, code_of(path))}
    assert writers - {"batch"} == {"promote", "release", "reclaim"}


@every_script
def test_script_has_a_method_and_a_test_file_of_its_name(path: Path) -> None:
    assert callable(getattr(DelayStore, path.stem))
    assert (ROOT / "tests" / "store" / f"test_{path.stem}.py").exists()


def test_every_method_of_the_store_is_a_script() -> None:
    methods = {
        name
        for name, _ in inspect.getmembers(DelayStore, inspect.isfunction)
        if not name.startswith("_")
    }
    assert methods == set(names()) == {path.stem for path in SCRIPTS}


@every_script
def test_includes_exist_are_used_and_stand_in_the_source(path: Path) -> None:
    (line,) = re.findall(r"^-- @include (.+)$", path.read_text(), re.MULTILINE)
    included = line.split()
    assert included[:2] == ["keys", "clock"]
    assert len(included) == len(set(included))
    source = script(path.stem).source
    assert "@include" not in source
    for name in included:
        assert (LUA / "shared" / f"{name}.lua").read_text() in source


@every_script
def test_names_of_parts_are_known_before_they_are_used(path: Path) -> None:
    source = re.sub(r"--.*", "", script(path.stem).source)
    defined = {
        name: position
        for each in SHARED
        for name in re.findall(r"^local function (\w+)", each.read_text(), re.MULTILINE)
        if (position := source.find(f"local function {name}(")) >= 0
    }
    everything = {
        name
        for each in SHARED
        for name in re.findall(r"^local function (\w+)", each.read_text(), re.MULTILINE)
    }
    for name in everything:
        first = re.search(rf"(?<!function )(?<![.\w]){name}\(", source)
        if first:
            assert name in defined, f"{path.stem} calls {name} and does not include it"
            assert defined[name] < first.start(), f"{name} is called before it is defined"


def test_keys_are_named_in_the_order_in_which_they_come() -> None:
    code = code_of(LUA / "shared" / "keys.lua")
    statements = re.findall(r"local ([A-Z, ]+)=\s*([^=]+?)(?=local|$)", code, re.DOTALL)
    pairs = []
    for left, right in statements:
        pairs += list(zip(re.findall(r"[A-Z]+", left), re.findall(r"\d+", right), strict=True))
    assert [(name.lower(), int(number)) for name, number in pairs] == [
        (name, place) for place, name in enumerate(SHARD_KEYS, 1)
    ]


def test_poll_has_the_fields_that_lua_gives() -> None:
    body = code_of(LUA / "shared" / "poll.lua").split("local function poll()")[1]
    given = re.findall(
        r"ZCARD', ([A-Z]+)|first_score\(([A-Z]+)\)|(NOW)|(held_since|hydrated_until)", body
    )
    words = ["".join(groups).lower() for groups in given]
    expected = [field.removeprefix("first_").removesuffix("_ms") for field in Poll._fields]
    assert words == expected


def test_readme_names_every_script() -> None:
    readme = (LUA / "README.md").read_text()
    assert [path.stem for path in SCRIPTS if f"`{path.stem}`" not in readme] == []
