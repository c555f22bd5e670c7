"""The options by which a command is told when an envelope is due."""

from datetime import datetime
from typing import Annotated

import typer

from duebridge.instants import parse_at

DURATIONS = "500ms, 2.5s, 15m, 1h30m, 3d, 2w"

DelayOption = Annotated[str | None, typer.Option(help=f"Due after this delay: {DURATIONS}.")]
AtOption = Annotated[
    datetime | None,
    typer.Option(
        help="Due at: RFC 3339 with an offset, or epoch milliseconds.",
        parser=parse_at,
        metavar="<instant>",
    ),
]
