"""Plots fit their width, and show that there is something wherever there is."""

import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duebridge.cli import plots
from duebridge.cli.plots import (
    ASCII,
    Bar,
    PlotCharacters,
    age,
    compact,
    cut,
    histogram_lines,
    marks_of,
)
from duebridge.cli.plots import sparkline as line_of

counts = st.integers(0, 10**9) | st.integers(0, 3)
bars = st.lists(st.builds(Bar, st.integers(0, 2**41), counts, counts), max_size=30)


def test_examples_of_plots_hold() -> None:
    failed, tried = doctest.testmod(plots)
    assert tried
    assert not failed


@given(given=bars, horizon=st.sampled_from(["hour", "day", "week"]))
def test_histogram_fits_80_columns_and_shows_both_kinds(given: list[Bar], horizon: str) -> None:
    for marks in (PlotCharacters(), ASCII):
        lines = histogram_lines(given, horizon, marks)
        assert max(map(len, lines), default=0) <= 80
        for bar, line in zip(given, lines, strict=True):
            assert (marks.retry in line) is (bar.retry > 0)
            assert (marks.pending in line) or not bar.pending or bar.retry


@given(st.integers(0, 10**12) | st.floats(0, 10**12))
def test_compact_number_has_five_characters_at_most(number: float) -> None:
    assert len(compact(number)) <= 5


@given(st.integers(-5, 2**45))
def test_age_is_short(ms: int) -> None:
    assert 1 <= len(age(ms)) <= 8


@given(st.lists(counts, max_size=60))
def test_sparkline_has_a_mark_exactly_where_something_is(given: list[int]) -> None:
    assert [mark != " " for mark in line_of(given, PlotCharacters())] == [
        each > 0 for each in given
    ]


@pytest.mark.parametrize(
    ("encoding", "expected"),
    [
        ("utf-8", PlotCharacters()),
        ("ascii", ASCII),
        (None, ASCII),
        ("nonsense", ASCII),
        ("latin-1", ASCII),
    ],
)
def test_marks_are_those_that_the_terminal_can_show(
    encoding: str | None, expected: PlotCharacters
) -> None:
    assert marks_of(encoding) == expected


def test_cut_text_is_as_wide_as_it_may_be() -> None:
    assert [cut("abcde", width, PlotCharacters()) for width in (5, 4, 1)] == ["abcde", "abc…", "…"]
