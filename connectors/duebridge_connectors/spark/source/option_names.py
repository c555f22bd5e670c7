"""The names of options: in Spark `dueAfter`, in Python and the code `due_after`.

Spark reads them case-insensitively. The names of earlier versions, `due_after`, are still read.
"""

import warnings
from collections.abc import Iterable, Mapping

from duebridge.errors import ConfigError, did_you_mean

_SPARKS_OWN = {"checkpointlocation"}


def spark_name(field: str) -> str:
    """Return the name of a field as Spark's users write it: `due_after` is `dueAfter`."""
    first, *rest = field.split("_")
    return first + "".join(map(str.capitalize, rest))


def spark_options(given: Mapping[str, object]) -> dict[str, str]:
    """Return the keywords of a Python call as options of the format."""
    return {spark_name(name): str(value) for name, value in given.items()}


class OptionNames:
    """The options of one kind of read or write."""

    def __init__(self, fields: Iterable[str]) -> None:
        self._shown = {field: spark_name(field) for field in fields}
        self._fields = {name.lower(): field for field, name in self._shown.items()}
        self._former = {field: field for field in self._shown if "_" in field}

    def given(self, options: Mapping[str, object]) -> dict[str, str]:
        """Return the names that are read of these options: not what is Spark's own."""
        return {name: str(text) for name, text in options.items() if not _is_sparks(name)}

    def field(self, name: str) -> str:
        """Return the field of an option; raises `ConfigError` with a suggestion."""
        lower = name.lower()
        field = self._fields.get(lower) or self._former.get(lower)
        if field is None:
            raise ConfigError(f"option {name}: unknown{self._suggestion(lower)}")
        return field

    def _suggestion(self, lower: str) -> str:
        shown = {name.lower(): name for name in self._shown.values()}
        close = did_you_mean(lower.replace("_", ""), shown)
        for small, name in shown.items():
            close = close.replace(f" {small}?", f" {name}?")
        return close or f", expected one of {', '.join(sorted(shown.values()))}"


def _is_sparks(name: str) -> bool:
    return name.lower() in _SPARKS_OWN


def warn_of_former(options: Mapping[str, object]) -> None:
    """Warn once of all options that are spelt as in earlier versions."""
    former = sorted(name for name in options if "_" in name)
    if former:
        now = ", ".join(f"{name} is now {spark_name(name)}" for name in former)
        warnings.warn(f"duebridge: options are spelt as Spark's: {now}", FutureWarning, 3)
