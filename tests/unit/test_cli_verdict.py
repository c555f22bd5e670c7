"""What exit code findings end a command with."""

import pytest

from duebridge.cli.verdict import exit_code_of
from duebridge.ports.checks import About, failure, ok, warning


def test_exit_code_without_a_failure_is_0() -> None:
    assert exit_code_of([]) == 0
    assert (
        exit_code_of([ok(About.STORE, "store", "fit"), warning(About.BROKER, "b", "w", "r")]) == 0
    )


@pytest.mark.parametrize(
    ("about", "code"),
    [
        (list(About), 2),
        ([About.ROUTE, About.BROKER, About.STORE], 3),
        ([About.ROUTE, About.BROKER], 4),
        ([About.ROUTE], 1),
    ],
)
def test_exit_code_of_several_failures_is_that_of_the_first_in_order(
    about: list[About], code: int
) -> None:
    assert exit_code_of([failure(each, "p", "f", "r") for each in about]) == code
