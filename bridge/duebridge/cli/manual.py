"""What stands below a command's help: an example, and what each of its exit codes means."""

from duebridge.cli.exits import BROKER, DONE, INTERRUPTED, NO, STORE, USAGE

_MEANINGS = {
    DONE: "done",
    NO: "the answer is no",
    USAGE: "usage or configuration",
    STORE: "the store is unreachable or unfit",
    BROKER: "a broker is unreachable, or a target is missing",
    INTERRUPTED: "interrupted",
}


def manual(*examples: str, no: str = "", needs_store: bool = True, broker: bool = False) -> str:
    r"""Return the text: each example on a line, then the exit codes that the command has.

    `no` says when the answer is no; a command without it never exits with 1. \b keeps the lines.
    """
    is_shown = {NO: bool(no), STORE: needs_store, BROKER: broker}
    codes = [code for code in _MEANINGS if is_shown.get(code, True)]
    meanings = {**_MEANINGS, NO: f"{_MEANINGS[NO]}: {no}"}
    return "\n\n".join(
        "\b\n" + "\n".join(lines)
        for lines in (
            [f"Example: {each}" for each in examples],
            ["Exit codes:", *(f"  {code:<3}  {meanings[code]}" for code in codes)],
        )
    )
