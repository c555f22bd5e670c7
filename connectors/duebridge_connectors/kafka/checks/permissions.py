"""The least ACLs to deliver to topics and to read them, as commands for `kafka-acls`."""

import re
from collections.abc import Mapping, Sequence
from shlex import join

from duebridge.envelope import Target
from duebridge.ports.source import SourcePlan

# Write delivers; Describe finds the leader; DescribeConfigs is for `doctor` alone.
OPERATIONS = ("Write", "Describe", "DescribeConfigs")
DEFAULT_GROUP = "duebridge"
_GLOB = re.compile(r"[*?\[]")

# Read and Describe fetch and find the leader; DescribeConfigs is for `doctor` alone.
SOURCE_OPERATIONS = ("Read", "Describe", "DescribeConfigs")
GROUP_OPERATIONS = ("Read",)  # joins, and commits


def group_of(plan: SourcePlan) -> str:
    """Return the consumer group of an intake."""
    return str(plan.source.get("group") or DEFAULT_GROUP)


def acl_commands(settings: Mapping[str, object], targets: Sequence[Target]) -> list[str]:
    """Return one command a topic, or a comment where no ACL can say what a glob does."""
    topics = dict.fromkeys(str(target.topic) for target in targets)
    return [_command(settings, topic) for topic in topics]


def source_acl_commands(settings: Mapping[str, object], plans: Sequence[SourcePlan]) -> list[str]:
    """Return one command a topic and one a group of intakes."""
    topics = dict.fromkeys(str(plan.source["topic"]) for plan in plans)
    groups = dict.fromkeys(map(group_of, plans))
    return [
        *(_granted(settings, SOURCE_OPERATIONS, ["--topic", topic]) for topic in topics),
        *(_granted(settings, GROUP_OPERATIONS, ["--group", group]) for group in groups),
    ]


def _command(settings: Mapping[str, object], topic: str) -> str:
    resource = _resource(topic)
    if not resource:
        return f"# topic {topic}: an ACL knows only names and prefixes; grant each topic"
    return _granted(settings, OPERATIONS, resource)


def _granted(
    settings: Mapping[str, object], operations: Sequence[str], resource: Sequence[str]
) -> str:
    given = settings.get("options")
    options = given if isinstance(given, Mapping) else {}
    user = str(options.get("sasl.username", "PRINCIPAL"))
    servers = settings.get("bootstrap_servers")
    server = str(servers[0]) if isinstance(servers, list) and servers else "HOST:PORT"
    named = [word for name in operations for word in ("--operation", name)]
    words = ["kafka-acls", "--bootstrap-server", server, "--add", "--allow-principal"]
    return join([*words, f"User:{user}", *named, *resource])


def _resource(topic: str) -> list[str]:
    """Return the words that name a topic or a glob; none where no ACL can."""
    prefix = topic.removesuffix("*")
    if _GLOB.search(prefix):
        return []
    if prefix in (topic, ""):
        return ["--topic", topic]
    return ["--resource-pattern-type", "prefixed", "--topic", prefix]
