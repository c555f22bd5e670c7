"""The errors that duebridge raises; the class tells the caller how to react.

BridgeError
├── ConfigError          fix the configuration; nothing was started
│   └── ConfigFileError  as its lines say, each of which begins with the place in the file
├── EnvelopeError        fix the envelope; it was not stored
├── JobFailed            a pipeline job failed part-way; run it again
└── StoreError
    ├── StoreUnavailable try again later; whether the last call took effect is unknown
    ├── StoreFull        free memory in the store; nothing of this call was stored
    ├── StoreUnfit       fix the store's settings; nothing was started
    └── RecordDamaged    this one envelope cannot be read; bury it
        └── RecordTooNew a newer duebridge wrote it; leave it to a newer worker
"""


class BridgeError(Exception):
    """The base class of all errors that duebridge raises."""


class ConfigError(BridgeError):
    """The configuration is invalid."""


class ConfigFileError(ConfigError):
    """A configuration file is invalid: a line for each mistake, which begins with its place."""


class EnvelopeError(BridgeError):
    """An envelope is invalid; the message states the expected and the actual value."""


class JobFailed(BridgeError):
    """A pipeline job failed part-way; running it again completes the rest."""


class StoreError(BridgeError):
    """A call of the delay store failed."""


class StoreUnavailable(StoreError):
    """The delay store did not answer in time; a write may or may not have happened.

    `ids` are the envelopes of a write whose answer is missing. Make the call again with the same
    ids, which is harmless.
    """

    def __init__(self, message: str = "", *, ids: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.ids = ids


class StoreFull(StoreError):
    """The delay store is out of memory; the call changed nothing."""


class StoreUnfit(StoreError):
    """The server is unfit to hold envelopes: wrong version, eviction policy or persistence."""


class RecordDamaged(StoreError):
    """A stored record has a known layout but is corrupt."""


class RecordTooNew(RecordDamaged):
    """A stored record has a layout that requires a newer duebridge."""


MOST_SHOWN = 200  # characters


def shown(value: object) -> str:
    """Return a short representation of a value for a message; never raises.

    `repr` itself fails for some values, such as integers of thousands of digits.
    """
    try:
        text = repr(value)
    except Exception:
        return f"a value of type {type(value).__name__} that cannot be shown"
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."
