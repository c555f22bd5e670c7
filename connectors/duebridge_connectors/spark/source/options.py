"""Options of the data source, all validated before the first row is read or written.

A field `due_after` is the option `dueAfter`; names are case-insensitive and values are text, as is
usual in Spark. An error names the option, the expected value and the given one; a store url that
contains a password is refused without being shown.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeAlias, TypeVar, get_type_hints

import msgspec

from duebridge.admin.listing import STATES
from duebridge.config.secrets import masked_url
from duebridge.durations import parse_duration_ms, parse_instant_ms
from duebridge.errors import ConfigError, EnvelopeError, unlisted_name
from duebridge.instants import parse_at
from duebridge.store.caller import MOST_ACTOR
from duebridge_connectors.spark.source.option_names import OptionNames, spark_name

Parser: TypeAlias = Callable[[str, str], Any]  # of the text and the name of an option

_MAX_COUNT = 2**31 - 1
_MOST_RUN = 100
LIVING = "living-"  # before the name of a run, for the far rows that the store judges
_RUN = re.compile(rf"(?:{LIVING})?[A-Za-z0-9._-]{{1,{_MOST_RUN}}}")


def _text(text: str, _: str = "") -> str:
    if not text.strip():
        raise ValueError("a text that is not empty")
    return text


def _run(text: str, _: str) -> str:
    """Return a name that is part of the names of files."""
    if not _RUN.fullmatch(text) or not text.strip("."):
        raise ValueError(f"1 to {_MOST_RUN} letters, digits, '.', '_' and '-', not only '.'")
    return text


def _actor(text: str, _: str) -> str:
    if len(text) > MOST_ACTOR:
        raise ValueError(f"at most {MOST_ACTOR} characters")
    return text


def _store(text: str, _: str) -> str:
    if masked_url(text) != text:
        raise ConfigError(
            "option store: expected its password as ${VAR} or ${file:/path}; got it in clear"
        )
    return _text(text)


def _names(text: str, _: str) -> tuple[str, ...]:
    found = tuple(name.strip() for name in text.split(","))
    if not all(found) or len(set(found)) < len(found):
        raise ValueError("names with commas between them, each once")
    return found


def _one_of(*words: str) -> Parser:
    def parse(text: str, _: str) -> str:
        if text not in words:
            raise ValueError(" or ".join(words))
        return text

    return parse


def _states(text: str, name: str) -> tuple[str, ...]:
    found = _names(text, name)
    if not set(found) <= set(STATES):
        raise ValueError(f"some of {', '.join(STATES)}")
    return found


def _count(least: int, most: int = _MAX_COUNT) -> Parser:
    def parse(text: str, _: str) -> int:
        if not (text.isascii() and text.isdigit() and least <= int(text) <= most):
            raise ValueError(f"a whole number, {least} to {most}")
        return int(text)

    return parse


def _instant(text: str, name: str) -> int:
    return parse_instant_ms(parse_at(text, name), name)


def given_path(text: str, _: str = "") -> str:
    """Return a path that is the same for every process: absolute, or a URI."""
    return text if "://" in text else str(Path(_text(text)).absolute())


class StoreOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The store, and how long to retry a call while it is unreachable."""

    config: Annotated[str | None, given_path] = None
    """Path of duebridge.yaml, read on the driver."""
    store: Annotated[str | None, _store] = None
    """Url of the store, overriding the configuration; its password only by reference."""
    namespace: Annotated[str | None, _text] = None
    """Namespace, overriding the configuration."""
    store_deadline: Annotated[int, parse_duration_ms] = 30_000
    """How long to retry a call while the store is unreachable, in ms."""


class CappedOptions(StoreOptions, frozen=True, kw_only=True):
    """A ceiling on what reads or writes at once."""

    max_connections: Annotated[int | None, _count(1)] = None
    """Most tasks at once that are connected to the store; by default as many as Spark runs."""


class WriteOptions(CappedOptions, frozen=True, kw_only=True):
    """Options of `df.write` and `df.writeStream`."""

    route: Annotated[str, _text]
    """The route to schedule to."""
    on_conflict: Annotated[str, _one_of("refuse", "replace")] = "refuse"
    """For a known id with other content: refuse, or replace."""
    id_columns: Annotated[tuple[str, ...], _names] = ()
    """Columns to derive the id from, if there is no column id."""
    id_use: Annotated[str, _one_of("any", "once")] = "any"
    """once: nothing else ever has these ids, so what was cancelled while cold stays cancelled."""
    remember: Annotated[int, parse_duration_ms] = 86_400_000
    """How long the store remembers an id after the end of its envelope, in ms."""
    rejects: Annotated[str | None, given_path] = None
    """Directory for Parquet files of the refused rows."""
    max_rejects: Annotated[int | None, _count(0)] = None
    """Fail the job if more rows are refused."""
    rows_per_second: Annotated[int | None, _count(1)] = None
    """Rate limit over all tasks."""
    summary: Annotated[str | None, given_path] = None
    """File for the counts, as JSON; for a stream a directory with a file for each batch."""
    run: Annotated[str | None, _run] = None
    """Name of this run; a run of the same name replaces the earlier rejects."""
    actor: Annotated[str, _actor] = ""
    """In whose name the rows are journalled; by default nobody's."""
    cold_lease: Annotated[str, _text] = ""
    """Token of a hydrate's lease of the cold tier: rows are refused once another job has it."""


class ReadOptions(CappedOptions, frozen=True, kw_only=True):
    """Options of `spark.read`: the envelopes of a store."""

    route: Annotated[tuple[str, ...], _names] = ()
    """Routes to read; all by default."""
    state: Annotated[tuple[str, ...], _states] = STATES
    """States to read."""
    due_after: Annotated[int | None, _instant] = None
    """Only envelopes due at this instant or later, epoch ms."""
    due_before: Annotated[int | None, _instant] = None
    """Only envelopes due before this instant, epoch ms."""
    content: Annotated[str, _one_of("decoded", "packed")] = "decoded"
    """decoded: body, key and headers as columns; packed: the blob, to be written back unchanged."""
    page: Annotated[int, _count(1, 1000)] = 500
    """Envelopes read by one call of the store."""
    min_partitions: Annotated[int, _count(1, 10_000)] = 1
    """At least so many tasks, where there are as many rows; one reads at most 50,000 of a state."""
    pause: Annotated[int, parse_duration_ms] = 0
    """Pause of a task between two calls, in ms."""


class JournalOptions(StoreOptions, frozen=True, kw_only=True):
    """Options of `spark.readStream`, and of `spark.read` with stream=journal."""

    stream: Annotated[str, _one_of("journal")] = "journal"
    """Selects the journal."""
    route: Annotated[tuple[str, ...], _names] = ()
    """Routes to read; all by default."""
    start: Annotated[str, _one_of("earliest", "latest")] = "earliest"
    """Where a new query starts: earliest, or latest."""
    content: Annotated[str, _one_of("entries", "ranges")] = "entries"
    """entries: their rows; ranges: a row for each range of entries, which a task of yours reads."""
    max_entries_per_trigger: Annotated[int | None, _count(1)] = None
    """Most journal entries in one micro-batch; an entry has up to 1,000 rows."""
    on_trim: Annotated[str, _one_of("fail", "gap")] = "fail"
    """If planned entries were cut meanwhile: fail, or continue with a gap row."""


_Options = TypeVar("_Options", bound=StoreOptions)


def write_options(given: Mapping[str, object]) -> WriteOptions:
    """Parse the options of a write; raises `ConfigError` with every fault."""
    options = _read(given, WriteOptions, needed=("config", "route"))
    if options.rejects is None and options.run is not None:
        raise ConfigError("option run: expected only beside rejects")
    if options.id_use == "once" and options.on_conflict == "replace":
        raise ConfigError("option idUse: expected any beside onConflict=replace; got 'once'")
    return options


def read_options(given: Mapping[str, object]) -> ReadOptions:
    """Parse the options of a read of the store; raises `ConfigError` with every fault."""
    return _read(given, ReadOptions)


def journal_options(given: Mapping[str, object]) -> JournalOptions:
    """Parse the options of a read of the journal; raises `ConfigError` with every fault."""
    return _read(given, JournalOptions)


def is_of_journal(given: Mapping[str, object]) -> bool:
    """Whether the options select the journal, which has other columns."""
    return "stream" in {name.lower() for name in given}


def is_of_ranges(given: Mapping[str, object]) -> bool:
    """Whether the options of the journal select its ranges, which have other columns."""
    return any(name.lower() == "content" and text == "ranges" for name, text in given.items())


def _read(
    given: Mapping[str, object], options: type[_Options], needed: tuple[str, ...] = ()
) -> _Options:
    hints = get_type_hints(options, include_extras=True)
    names = OptionNames(options.__struct_fields__)
    found: dict[str, Any] = {}
    faults: list[str] = []
    for name, text in names.given(given).items():
        try:
            field = names.field(name)
            if field in found:
                raise ConfigError(f"option {spark_name(field)}: expected once; got {name} too")
            found[field] = _value(spark_name(field), text, hints[field].__metadata__[0])
        except (EnvelopeError, ConfigError) as error:
            faults.append(str(error))
    faults += [f"option {name}: missing" for name in needed if name not in given]
    if not needed and not {"config", "store"} & {name.lower() for name in given}:
        faults.append("option config: expected the path of duebridge.yaml, or option store")
    if faults:
        raise ConfigError("; ".join(faults))
    return options(**found)


def _value(name: str, text: str, parser: Parser) -> Any:
    try:
        return parser(text, name)
    except ValueError as error:
        raise ConfigError(f"option {name}: expected {error}; got {text!r}") from None
    except EnvelopeError as error:
        raise ConfigError(f"option {error}") from None


TABLE = "table"
FORMATS = ("parquet", "csv", "json", "orc", TABLE)


def check_format(name: str) -> None:
    """Raise `ConfigError` for an input format that no job reads."""
    if name not in FORMATS:
        raise ConfigError(f"format: {unlisted_name(name, FORMATS)}")
