"""Waits until replicas have what a call wrote.

The call and WAIT go in one round trip on one connection, of a Cluster to the node that owns the
keys: WAIT counts the replicas that have the last write of its own connection. So the script of such
a call always writes (`lua/shared/renewed.lua`), even where it only repeats an answer.
"""

from functools import partial
from typing import Any

from redis.exceptions import NoPermissionError

from duebridge.config.durability import ReplicaWait
from duebridge.durations import format_ms
from duebridge.errors import Indeterminate
from duebridge.store.server.scripts import Script, run_script
from duebridge.store.server.sets.cluster import ClusterClient

# Settlements need not wait: what they lose is a duplicate after a fault.
WAITING = frozenset(
    (
        *("schedule", "keep", "cancel", "reschedule", "replay", "drop", "demote", "mark"),
        *("claim", "probe", "shunt"),
    )
)


def run_replicated(client: Any, called: Script, rest: tuple[Any, ...], wanted: ReplicaWait) -> Any:
    """Return a script's answer once `wanted.replicas` have what it wrote; `rest` begins EVALSHA's.

    Raises `Indeterminate` with the answer where too few say so in time, and the client's errors.
    """

    def run(node: Any) -> Any:
        execute = partial(_execute, node, wanted)
        return run_script(called, rest, execute, lambda: node.script_load(called.source))

    return client.at_owner(rest[1], run) if isinstance(client, ClusterClient) else run(client)


def _execute(client: Any, wanted: ReplicaWait, *command: Any) -> Any:
    with client.pipeline(transaction=False) as pipe:
        pipe.execute_command(*command)
        pipe.execute_command("WAIT", wanted.replicas, wanted.timeout)
        answer, found = pipe.execute(raise_on_error=False)
    if isinstance(answer, Exception):  # then the number of replicas means nothing
        raise answer
    if isinstance(found, NoPermissionError):
        raise found
    count = found if isinstance(found, int) else 0  # an error: it is no primary any more
    if count < wanted.replicas:
        raise Indeterminate(_too_few(count, wanted), reply=answer)
    return answer


def _too_few(count: int, wanted: ReplicaWait) -> str:
    within = format_ms(wanted.timeout)
    text = f"{count} of {wanted.replicas} replicas confirmed the write within {within}"
    return f"{text}: a failover of the delay store may lose it"
