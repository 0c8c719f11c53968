"""Charts of a diagnosis beyond the bars of every page: letters against the key, kinds stacked, shades of a heat map."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup, escape

from synth.report.advice import code
from synth.report.html import percent, svg

WIDTH = 300
"""Pixels of a stacked bar."""
_GROUND = (247, 246, 242)
# One hue from light to dark, with orange for what lies below chance: both ends differ in lightness and in the
# blue-orange axis, which red-green blindness leaves intact.
_ABOVE = ((0.0, _GROUND), (0.25, (198, 219, 240)), (0.5, (107, 160, 214)), (0.75, (33, 102, 172)), (1.0, (8, 48, 107)))
_BELOW = ((0.0, _GROUND), (0.4, (226, 138, 66)))
_DARK_FROM = 0.62
"""Above this share white ink reads better than dark ink."""


@dataclass(frozen=True, kw_only=True)
class Shade:
    """Colours of one cell of a heat map, as CSS."""

    paper: str
    ink: str


def shade(above_chance: float | None) -> Shade:
    """Colours for a share of the way from chance (0) to all right (1); below 0 orange, None grey."""
    if above_chance is None:
        return Shade(paper="#e3e0d8", ink="#59616f")
    stops, at = (_ABOVE, above_chance) if above_chance >= 0 else (_BELOW, -above_chance)
    red, green, blue = _between(stops, at)
    return Shade(paper=f"#{red:02x}{green:02x}{blue:02x}", ink="#ffffff" if above_chance > _DARK_FROM else "#1b2230")


def _between(stops: tuple[tuple[float, tuple[int, int, int]], ...], at: float) -> tuple[int, int, int]:
    for (start, first), (end, second) in pairwise(stops):
        if at <= end:
            part = (at - start) / (end - start)
            red, green, blue = (round(a + part * (b - a)) for a, b in zip(first, second, strict=True))
            return red, green, blue
    return stops[-1][1]


def stacked(parts: Mapping[str, int], total: int, *, label: str = "") -> Markup:
    """A bar of `total` items with one coloured piece a kind, in the order given; the rest of the bar stays empty.

    The colour belongs to the kind (style class `k-<kind>`), so a kind looks the same on every bar.
    """
    if total <= 0:
        return Markup('<span class="muted">none</span>')
    body, x = f'<rect class="rest" x="0" y="1" width="{WIDTH}" height="20" rx="2"/>', 0.0
    for kind, n in parts.items():
        wide = WIDTH * n / total
        if n:
            name = escape(kind.replace("_", " "))
            body += (
                f'<rect class="seg k-{code(kind)}" x="{x:.1f}" y="1" width="{max(1.0, wide - 1):.1f}" height="20">'
                f"<title>{name}: {n} of {total}</title></rect>"
            )
        if wide >= 9 * len(str(n)) + 5:
            body += f'<text class="k-{code(kind)}" x="{x + wide / 2:.1f}" y="15" text-anchor="middle">{n}</text>'
        x += wide
    said = ", ".join(f"{kind.replace('_', ' ')} {n}" for kind, n in parts.items() if n)
    return svg(body, f"{label}: {said or 'none'} of {total}".removeprefix(": "), height=22, kind="kinds")


def letter_bars(said: Mapping[str, int], key: Mapping[str, int], *, label: str = "") -> Markup:
    """How often the model gives each letter (filled) beside how often it is right (outlined); full height is 100 %."""
    letters = sorted({*said, *key})
    totals = (sum(said.values()), sum(key.values()))
    if not all(totals):
        return Markup('<span class="muted">no letters</span>')
    step, top, high = 56, 14, 64
    body, spoken = f'<line class="base" x1="0" x2="{step * len(letters)}" y1="{top + high}" y2="{top + high}"/>', []
    for index, letter in enumerate(letters):
        shares = (said.get(letter, 0) / totals[0], key.get(letter, 0) / totals[1])
        for side, (name, share) in enumerate(zip(("said", "key"), shares, strict=True)):
            x, y = index * step + 6.5 + 22 * side, top + high * (1 - share)
            body += (
                f'<rect class="letter {name}" x="{x}" y="{y:.1f}" width="20" height="{top + high - y:.1f}"/>'
                f'<text x="{x + 10}" y="{y - 3:.1f}" text-anchor="middle">{100 * share:.0f}</text>'
            )
        name = escape(letter)
        body += f'<text class="name" x="{index * step + 28}" y="{top + high + 15}" text-anchor="middle">{name}</text>'
        spoken.append(f"{letter} {percent(shares[0])} of replies, {percent(shares[1])} of key")
    text = f"{label}: {'; '.join(spoken)}".removeprefix(": ")
    return svg(body, text, width=step * len(letters), height=top + high + 20, kind="letters")
