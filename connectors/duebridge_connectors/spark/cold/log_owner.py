"""The owner of a cold tier's log: the namespace whose rows it has.

    PATH/route=R/_owner.json                                    {"namespace": "duebridge"}

Two namespaces with one path and one route's name would share a log, and whoever hydrates first
would commit the rows of both as returned. Nothing else of a store outlives it as its files do: one
that was lost, restored, moved or purged goes on with them.
"""

import msgspec

from duebridge.errors import ConfigError, JobFailed
from duebridge_connectors.spark.cold.commit_log import ColdLog
from duebridge_connectors.spark.filesystem import create_file, read_file

OWNER = "_owner.json"


class LogOwner(msgspec.Struct, frozen=True):
    """The content of the file."""

    namespace: str


def claim_log(log: ColdLog, namespace: str) -> None:
    """Make a namespace the owner of a log that has none.

    Raises `ConfigError` for another owner, `OSError`, and `JobFailed` for a damaged file.
    """
    if not check_owner(log, namespace):
        create_file(log.root / OWNER, msgspec.json.encode(LogOwner(namespace)))
        check_owner(log, namespace)  # another job may have been first


def check_owner(log: ColdLog, namespace: str) -> bool:
    """Return whether a log has an owner.

    Raises `ConfigError` for a log of another namespace, `OSError`, and `JobFailed`.
    """
    owner = owner_of(log)
    if owner not in ("", namespace):
        raise ConfigError(
            f"cold_tier.path: expected {log.root} to be of the namespace {namespace}, by its file"
            f" {OWNER}; got {owner}: each would lose the rows of the other. Give one of them"
            f" another path; if {namespace} goes on with the files of {owner}, which takes no more"
            " of them, delete that file"
        )
    return bool(owner)


def owner_of(log: ColdLog) -> str:
    """Return the namespace that owns a log, "" for none."""
    try:
        return msgspec.json.decode(read_file(log.root / OWNER), type=LogOwner).namespace
    except FileNotFoundError:
        return ""
    except msgspec.DecodeError as error:
        what = f"{log.root}/{OWNER}: expected the owner of the log; got: {error}"
        raise JobFailed(f"{what}; delete it: the next job makes another") from error
