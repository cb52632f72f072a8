"""A curve in a terminal: dots in braille where the output can show them, stars where it cannot."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tuneport.jobs.metrics.collect import Point, Series

_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))


def plot(series: Series, *, width: int = 60, height: int = 8, unicode: bool = True) -> str:
    """The curve with its name, range and steps; NaN and infinite values are counted and marked below.

    `width` and `height` are of the drawing, in characters.
    """
    points = [point for point in series.points if math.isfinite(point.value)]
    odd = f"  {series.odd} not finite" if series.odd else ""
    head = f"{series.name}  last {number(series.last.value)}{odd}"
    if not points:
        return f"{head}\n  (no finite value)\n"
    low, high = min(p.value for p in points), max(p.value for p in points)
    first, last = series.points[0].step, series.last.step
    rows = _draw(points, (first, last), (low, high), width, height, unicode)
    labels = [""] * height
    labels[-1] = number(low)
    labels[0 if high > low else height // 2] = number(high)
    if high == low and height > 1:
        labels[-1] = ""
    margin = max(len(label) for label in labels)
    bar = "│" if unicode else "|"
    text = "".join(f"{label:>{margin}} {bar}{row}\n" for label, row in zip(labels, rows, strict=True))
    steps = f"step {first}"
    right = str(last)
    line = (
        f"{'':>{margin}}  {steps}{right:>{max(1, width - len(steps))}}"
        if last > first
        else f"{'':>{margin}}  {steps}"
    )
    marks = _odd_marks(series.points, (first, last), width)
    odd_line = f"{'NaN':>{margin}} {bar}{marks}\n" if marks.strip() else ""
    return f"{head}\n{text}{odd_line}{line}\n"


def number(value: float) -> str:
    """Five significant digits; NaN and infinity by name."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return f"{value:.5g}"


def _place(value: float, low: float, high: float, count: int) -> int:
    if high <= low or count < 2:
        return 0
    # Halved first: the difference of two floats may itself be too large.
    share = (value / 2 - low / 2) / (high / 2 - low / 2)
    return min(count - 1, max(0, round(share * (count - 1))))


def _draw(
    points: Sequence[Point],
    steps: tuple[int, int],
    values: tuple[float, float],
    width: int,
    height: int,
    unicode: bool,
) -> list[str]:
    across, down = (width * 2, height * 4) if unicode else (width, height)
    cells = [[0] * width for _ in range(height)]
    flat = values[0] == values[1]
    before: tuple[int, int] | None = None
    for point in points:
        x = _place(point.step, *steps, across)
        y = down // 2 if flat else down - 1 - _place(point.value, *values, down)
        for px, py in _line(before or (x, y), (x, y)):
            if unicode:
                cells[py // 4][px // 2] |= _DOTS[py % 4][px % 2]
            else:
                cells[py][px] = 1
        before = (x, y)
    if unicode:
        return ["".join(chr(0x2800 + cell) if cell else " " for cell in row).rstrip() for row in cells]
    return ["".join("*" if cell else " " for cell in row).rstrip() for row in cells]


def _line(start: tuple[int, int], end: tuple[int, int]) -> list[tuple[int, int]]:
    count = max(abs(end[0] - start[0]), abs(end[1] - start[1]), 1)
    return [
        (
            round(start[0] + (end[0] - start[0]) * part / count),
            round(start[1] + (end[1] - start[1]) * part / count),
        )
        for part in range(count + 1)
    ]


def _odd_marks(points: Sequence[Point], steps: tuple[int, int], width: int) -> str:
    marks = [" "] * width
    for point in points:
        if not math.isfinite(point.value):
            marks[_place(point.step, *steps, width)] = "x"
    return "".join(marks).rstrip()
