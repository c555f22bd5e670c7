"""`duebridge acl`: the minimal rights of the store and broker users."""

from enum import StrEnum
from typing import Annotated

import typer

from duebridge.cli.output import write
from duebridge.cli.session import ConfigOption, load


class RoleChoice(StrEnum):
    """The rights of a user of the store."""

    OPERATOR = "operator"
    READONLY = "readonly"


RoleOption = Annotated[
    RoleChoice, typer.Option("--role", help="operator may do everything; readonly only looks.")
]
NamespaceOption = Annotated[
    str | None,
    typer.Option(help="The store's namespace; by default the configuration's.", show_default=False),
]
UserOption = Annotated[
    str | None,
    typer.Option(help="The store's user; by default that of store.url.", show_default=False),
]
FileOption = Annotated[
    bool, typer.Option("--acl-file", help="Only the user's line, as in an ACL file of the server.")
]


def acl(
    context: typer.Context,
    role: RoleOption = RoleChoice.OPERATOR,
    namespace: NamespaceOption = None,
    user: UserOption = None,
    acl_file: FileOption = False,
    config: ConfigOption = None,
) -> None:
    """Print the minimal rights of the store and broker users.

    The store's as a command for redis-cli, then each broker's, for its own tools. Nothing is
    connected and nothing is changed. Write the user's password in place of PASSWORD.

    Redis cannot tell who may schedule from who may operate, since every script uses the same
    commands: give read-only users the role readonly.
    """
    from duebridge.admin.checks.permissions import broker_lines, store_lines, store_rule, store_user

    settings = load(context, config)
    named = settings.store.namespace if namespace is None else namespace
    who = store_user(settings, role.value) if user is None else user
    if acl_file:
        write(store_rule(role.value, named, who, settings.needs))
        return
    lines = list(store_lines(role.value, named, who, settings.needs))
    if role is RoleChoice.OPERATOR:
        lines += broker_lines(settings)
    write("\n".join(lines))
