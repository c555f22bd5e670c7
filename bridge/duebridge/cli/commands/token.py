"""`duebridge token`: a new token of the HTTP interface."""

from typing import Annotated

import typer

from duebridge.cli.output import Output, OutputOption, complain, write, write_json

NameArgument = Annotated[
    str, typer.Argument(help="Whose token it is, for the journal and the log.", show_default=False)
]
ScopesOption = Annotated[
    str, typer.Option(help="Scopes of the token, separated by commas: schedule, read, operate.")
]
RoutesOption = Annotated[
    str, typer.Option(help="The routes it may use, separated by commas; names may be globs.")
]


def token(
    name: NameArgument,
    scopes: ScopesOption = "schedule,read",
    routes: RoutesOption = "*",
    output: OutputOption = Output.TABLE,
) -> None:
    """Make a token for the HTTP interface.

    It prints the secret once (only its SHA-256 sum is kept), and the line for the file that
    serve.tokens names. schedule: send, reschedule and cancel. read: look up, routes, statistics.
    operate: read, deliver now, and all that the console changes.
    """
    import msgspec

    from duebridge.http.tokens import check_token, digest_of, new_secret

    secret = new_secret()
    made = check_token(
        {
            "name": name,
            "sha256": digest_of(secret),
            "scopes": _words(scopes),
            "routes": _words(routes),
        }
    )
    line = msgspec.json.encode(made).decode()  # JSON is YAML
    if output is Output.JSON:
        write_json({"secret": secret, "line": msgspec.to_builtins(made)})
        return
    complain("The secret, shown this once; a client sends it as Authorization: Bearer SECRET")
    write(secret)
    complain("The line for the file of serve.tokens:")
    write(f"- {line}")


def _words(text: str) -> list[str]:
    return [word for each in text.split(",") if (word := each.strip())]
