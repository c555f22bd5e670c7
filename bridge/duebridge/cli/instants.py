"""The options by which a command is told when an envelope is due."""

from datetime import datetime
from typing import Annotated

import typer

from duebridge.instants import parse_at

DelayOption = Annotated[
    str | None, typer.Option(help="Due after this delay: 500ms, 2.5s, 15m, 2h, 3d.")
]
AtOption = Annotated[
    datetime | None,
    typer.Option(
        help="Due at: RFC 3339 with an offset, or epoch milliseconds.",
        parser=parse_at,
        metavar="<instant>",
    ),
]
