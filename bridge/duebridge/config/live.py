"""Settings of a broker whose references are resolved again whenever one is read."""

from collections.abc import Callable, Iterator, Mapping


class LiveSettings(Mapping[str, object]):
    """A mapping that reads its values again at each access, so that a secret's file may change.

    Reading raises `ConfigError` while a variable or file is missing.
    """

    def __init__(self, read: Callable[[], Mapping[str, object]]) -> None:
        self._read = read

    def __getitem__(self, key: str) -> object:
        return self._read()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())

    def __repr__(self) -> str:
        """Show no secret."""
        return "LiveSettings(***)"
