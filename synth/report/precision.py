"""A dial's precision against its yield, as a small chart: the measured share, its lower bound, the target."""

from __future__ import annotations

import math

from markupsafe import Markup, escape

from synth.audit.calibrate import Curve, Point
from synth.report.html import svg

WIDTH, HEIGHT = 320, 190
"""Pixels."""
_LEFT, _RIGHT, _TOP, _BOTTOM = 40, 10, 10, 34
MIN_POINT = 8
"""Candidates below which a share is too coarse to draw."""


def precision_curve(curve: Curve, target: float) -> Markup:
    """Precision (line) and its 95 % lower bound (shade) over the share of candidates that pass; a dot where the dial
    stands after calibration. The scale of precision begins where the curve needs it and ends at 100 %."""
    points = [point for point in curve.points if point.n >= MIN_POINT]
    if not points:
        return Markup('<span class="muted">too few candidates to draw</span>')
    floor = min(0.9, math.floor(10 * min(target, *(point.low for point in points))) / 10)
    line = " ".join(f"{_x(p)},{_y(p.precision, floor)}" for p in points)
    back = " ".join(f"{_x(p)},{_y(p.low, floor)}" for p in reversed(points))
    body = _ground(floor)
    body += f'<polygon class="band" points="{line} {back}"/><polyline class="trace" points="{line}"/>'
    at = _y(target, floor)
    body += f'<line class="chance" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{at}" y2="{at}"/>'
    for point in points:
        said = (
            f"{curve.dial.option} > {point.value:.3g}: {point.right} of {point.n} right, {100 * point.kept:.0f}% kept"
        )
        place = f'cx="{_x(point)}" cy="{_y(point.precision, floor)}"'
        body += f'<circle class="spot" {place} r="3"><title>{escape(said)}</title></circle>'
    if curve.chosen is not None:
        place = f'cx="{_x(curve.chosen)}" cy="{_y(curve.chosen.precision, floor)}"'
        body += f'<circle class="dot after" {place} r="5.5"/>'
    first, last = points[0], points[-1]
    label = (
        f"{curve.task}, {curve.domain or 'all domains'}, {curve.dial.option}: precision {100 * first.precision:.1f} % "
        f"with all {first.n} candidates, {100 * last.precision:.1f} % with the {last.n} surest"
    )
    return svg(body, label, width=WIDTH, height=HEIGHT, kind="yield")


def _ground(floor: float) -> str:
    """Grid and scales."""
    body = ""
    for k in range(5):
        share = floor + (1 - floor) * k / 4
        y = _y(share, floor)
        body += f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y}" y2="{y}"/>'
        body += f'<text x="{_LEFT - 5}" y="{float(y) + 4:.1f}" text-anchor="end">{100 * share:.3g}</text>'
    for k in range(5):
        x = _LEFT + (WIDTH - _LEFT - _RIGHT) * k / 4
        body += f'<text x="{x:.1f}" y="{HEIGHT - _BOTTOM + 14}" text-anchor="middle">{25 * k}</text>'
    middle = (_LEFT + WIDTH - _RIGHT) / 2
    return f'{body}<text x="{middle}" y="{HEIGHT - 4}" text-anchor="middle">% of candidates kept</text>'


def _x(point: Point) -> str:
    return f"{_LEFT + (WIDTH - _LEFT - _RIGHT) * min(1.0, point.kept):.1f}"


def _y(share: float, floor: float) -> str:
    return f"{_TOP + (HEIGHT - _TOP - _BOTTOM) * (1 - max(0.0, (share - floor) / (1 - floor))):.1f}"
