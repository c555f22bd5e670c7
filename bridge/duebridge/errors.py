"""Every error a caller can meet; its class says what to do next.

BridgeError
├── ConfigError          mend the configuration; nothing was started
├── EnvelopeError        mend the envelope; nothing of it was stored
├── JobFailed            a job of the pipeline ended part-way; run it again
└── StoreError
    ├── StoreUnavailable try again later; whether the last call took effect is unknown
    ├── StoreFull        free memory in the store; nothing of this call was stored
    ├── StoreUnfit       mend the store's settings; nothing was started
    └── RecordDamaged    this one envelope cannot be read; bury it
        └── RecordTooNew a newer duebridge wrote it; leave it to a newer worker
"""


class BridgeError(Exception):
    """Anything duebridge itself refuses or cannot do."""


class ConfigError(BridgeError):
    """The configuration cannot be used as it is."""


class EnvelopeError(BridgeError):
    """An envelope is refused: what was expected and what came is in the message."""


class JobFailed(BridgeError):
    """A job of the pipeline ended part-way; running it again does what is left."""


class StoreError(BridgeError):
    """The delay store did not do what was asked."""


class StoreUnavailable(StoreError):
    """The delay store did not answer in time; a write may or may not have happened."""


class StoreFull(StoreError):
    """The delay store is out of memory and refused the call whole."""


class StoreUnfit(StoreError):
    """The server is not one that may hold envelopes: wrong version, policy or persistence."""


class RecordDamaged(StoreError):
    """A stored record is of a known layout but cannot be read."""


class RecordTooNew(RecordDamaged):
    """A stored record has a layout that only a newer duebridge knows."""


MOST_SHOWN = 200  # characters


def shown(value: object) -> str:
    """Return a value for a message: not long, and without an error of its own.

    Python itself refuses to print a number of thousands of digits.
    """
    try:
        text = repr(value)
    except Exception:
        return f"a value of type {type(value).__name__} that cannot be shown"
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."
