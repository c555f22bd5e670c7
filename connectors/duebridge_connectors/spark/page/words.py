"""Numbers and times as a person reads them at a glance."""


def count(value: float) -> str:
    """Return a count; from ten thousand on in thousands or millions.

    >>> count(9_999), count(12_345), count(1_234_567), count(2_000_000)
    ('9,999', '12.3k', '1.23M', '2M')
    """
    for size, unit in ((1_000_000, "M"), (1_000, "k")):
        if value >= max(size, 10_000):
            return (
                f"{value / size:.3g}{unit}"
                if value < 1_000 * size
                else f"{value / size:,.0f}{unit}"
            )
    return f"{value:,.0f}"


def duration(ms: float) -> str:
    """Return a duration of milliseconds in the largest unit of which there are two, or seconds.

    >>> duration(7), duration(1_500), duration(100_000), duration(7_200_000), duration(172_800_000)
    ('7 ms', '1.5 s', '100 s', '2 h', '2 d')
    """
    for size, unit in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s")):
        if abs(ms) >= (size if unit == "s" else 2 * size):
            return f"{ms / size:.3g} {unit}"
    return f"{ms:.0f} ms"
