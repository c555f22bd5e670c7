"""The least ACLs to deliver to topics, as commands for `kafka-acls`."""

import re
from collections.abc import Mapping, Sequence
from shlex import join

from duebridge.envelope import Target

# Write delivers; Describe finds the leader; DescribeConfigs is for `doctor` alone.
OPERATIONS = ("Write", "Describe", "DescribeConfigs")
_GLOB = re.compile(r"[*?\[]")


def acl_commands(settings: Mapping[str, object], targets: Sequence[Target]) -> list[str]:
    """Return one command a topic, or a comment where no ACL can say what a glob does."""
    given = settings.get("options")
    options = given if isinstance(given, Mapping) else {}
    user = str(options.get("sasl.username", "PRINCIPAL"))
    servers = settings.get("bootstrap_servers")
    server = str(servers[0]) if isinstance(servers, list) and servers else "HOST:PORT"
    topics = dict.fromkeys(str(target.topic) for target in targets)
    return [_command(server, user, topic) for topic in topics]


def _command(server: str, user: str, topic: str) -> str:
    resource = _resource(topic)
    if not resource:
        return f"# topic {topic}: an ACL knows only names and prefixes; grant each topic"
    operations = [word for name in OPERATIONS for word in ("--operation", name)]
    words = ["kafka-acls", "--bootstrap-server", server, "--add", "--allow-principal"]
    return join([*words, f"User:{user}", *operations, *resource])


def _resource(topic: str) -> list[str]:
    """Return the words that name a topic or a glob; none where no ACL can."""
    prefix = topic.removesuffix("*")
    if _GLOB.search(prefix):
        return []
    if prefix in (topic, ""):
        return ["--topic", topic]
    return ["--resource-pattern-type", "prefixed", "--topic", prefix]
