"""Line charts: several series over steps, bands or rounds, told apart by dashes and marks as well as by colour."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from synth.report.html import svg

WIDTH, HEIGHT = 420, 220
"""Pixels."""
STYLES = 8
"""Styles that can be told apart (classes l0 … in the style sheet); further series begin again."""
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 14, 10, 38
_APART = 7
"""Pixels between the intervals of two series at one place."""


@dataclass(frozen=True, kw_only=True)
class Dot:
    """One value of a series, with its interval where one is known."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, kw_only=True)
class Series:
    """One line. `style`: its class in the style sheet."""

    name: str
    style: str
    dots: tuple[Dot, ...]


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A chart with what its legend needs."""

    title: str
    picture: Markup
    keys: tuple[tuple[str, Markup], ...]
    """Name and sample of each line."""


def style_of(index: int) -> str:
    """Class of the index-th line of a chart."""
    return f"l{index % STYLES}"


def sample(style: str, *, marks: bool) -> Markup:
    """A piece of a line, for a legend."""
    mark = f'<circle class="mark {style}" cx="17" cy="7" r="4"/>' if marks else ""
    line = f'<line class="line {style}" x1="1" x2="33" y1="7" y2="7"/>'
    return Markup(f'<svg class="chart" width="34" height="14" aria-hidden="true">{line}{mark}</svg>')


def shares(title: str, series: Sequence[Series], places: Sequence[str], *, chance: float | None = None) -> Chart:
    """Shares on a scale of 0 to 100 % over named places 0, 1, …; every value is a mark with its interval."""
    span = max(1, len(places) - 1)

    def across(at: float) -> float:
        return _LEFT + 24 + (WIDTH - _LEFT - _RIGHT - 48) * at / span

    body = _grid([(q, f"{100 * q:.0f}%") for q in (0, 0.25, 0.5, 0.75, 1)], top=1.0)
    if chance is not None and math.isfinite(chance):
        y = _y(chance, 1.0)
        body += f'<line class="chance" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y}" y2="{y}"/>'
    for index, name in enumerate(places):
        body += _text(across(index), HEIGHT - _BOTTOM + 16, name)
    for index, one in enumerate(series):
        # Side by side, so that the intervals of two series do not lie on each other.
        shift = _APART * (index - (len(series) - 1) / 2)
        body += _line(one, [(across(dot.x) + shift, dot) for dot in one.dots], 1.0, marks=True)
    return _chart(title, body, series, marks=True)


def over_steps(title: str, series: Sequence[Series], *, y: str, top: float | None = None) -> Chart | None:
    """Values over training steps, from 0 to `top`; None where no line has two values.

    Without `top` the scale fits what comes after the first tenth of the steps: a loss that begins far above runs along
    the upper edge until then.

    With `top` 1 the scale is in percent, and every value is a mark.
    """
    kept = [one for one in series if len(one.dots) > 1]
    if not kept:
        return None
    share = top == 1.0
    last = max(dot.x for one in kept for dot in one.dots)
    settled = [dot.y for one in kept for dot in one.dots if dot.x > last / 10]
    ticks = _ticks(max(settled) if top is None else top)
    high = ticks[-1]

    def across(at: float) -> float:
        return _LEFT + (WIDTH - _LEFT - _RIGHT) * at / max(last, 1.0)

    body = _grid([(tick, f"{100 * tick:.0f}%" if share else f"{tick:g}") for tick in ticks], top=high)
    for tick in _ticks(last):
        if tick <= last:
            body += _text(across(tick), HEIGHT - _BOTTOM + 16, f"{tick:g}")
    body += _text((_LEFT + WIDTH - _RIGHT) / 2, HEIGHT - 5, f"{y} over the training steps")
    for one in reversed(kept):  # the first line lies on top
        body += _line(one, [(across(dot.x), dot) for dot in one.dots], high, marks=share)
    return _chart(title, body, kept, marks=share)


def _chart(title: str, body: str, series: Sequence[Series], *, marks: bool) -> Chart:
    said = "; ".join(f"{one.name} from {one.dots[0].y:.3g} to {one.dots[-1].y:.3g}" for one in series if one.dots)
    return Chart(
        title=title,
        picture=svg(body, f"{title}: {said}", width=WIDTH, height=HEIGHT, kind="lines"),
        keys=tuple((one.name, sample(one.style, marks=marks)) for one in series),
    )


def _grid(ticks: Sequence[tuple[float, str]], *, top: float) -> str:
    body = ""
    for value, name in ticks:
        y = _y(value, top)
        body += (
            f'<line class="{"base" if value == 0 else "grid"}" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y}" y2="{y}"/>'
        )
        body += _text(_LEFT - 6, float(y) + 4, name, anchor="end")
    return body


def _line(one: Series, places: Sequence[tuple[float, Dot]], top: float, *, marks: bool) -> str:
    path = " ".join(f"{x:.1f},{_y(dot.y, top)}" for x, dot in places)
    body = f'<polyline class="line {one.style}" points="{path}"/>'
    for x, dot in places if marks else ():
        if dot.low is not None and dot.high is not None:
            low, high = _y(dot.low, top), _y(dot.high, top)
            body += f'<line class="iv {one.style}" x1="{x:.1f}" x2="{x:.1f}" y1="{low}" y2="{high}"/>'
        body += f'<circle class="mark {one.style}" cx="{x:.1f}" cy="{_y(dot.y, top)}" r="4.5"/>'
    return body


def _text(x: float, y: float, text: str, *, anchor: str = "middle") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _y(value: float, top: float) -> str:
    return f"{_TOP + (HEIGHT - _TOP - _BOTTOM) * (1 - min(1.0, max(0.0, value / top))):.1f}"


def _ticks(most: float) -> list[float]:
    """0 and four or five round values up to `most` or just beyond it."""
    if not math.isfinite(most) or most <= 0:
        return [0.0, 1.0]
    rough = most / 4
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * m for m in (1, 2, 2.5, 5, 10) if unit * m >= rough * 0.999)
    return [round(step * i, 10) for i in range(math.ceil(most / step - 1e-9) + 1)]
