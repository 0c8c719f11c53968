"""Does the model look? Visual sensitivity before and after a training, ready to print."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from markupsafe import Markup, escape

from synth.diagnosis.statistics import corrected
from synth.report.changes import role_of, tone_of
from synth.report.html import Tone, nats, p_value, percent, svg, words
from synth.report.reading import Round
from synth.report.records import SkillLooks

REGIONS = {
    "around_marks": "the marked places",
    "with_marks": "the marked places with their marks",
    "boxes": "the boxes that the benchmark gives",
    "whole_image": "the whole picture",
}
QUADRANTS = {
    "grounded_right": "looks, right",
    "blind_right": "does not look, right",
    "misreads": "looks, wrong",
    "blind_wrong": "does not look, wrong",
}
"""In the order of the bars: right answers first."""
_WIDTH, _LEFT = 560, 52
_LETTER = 6.2
"""Pixels of a letter in a bar."""


@dataclass(frozen=True, kw_only=True)
class Look:
    """One skill."""

    title: str
    facts: SkillLooks
    region: str
    tone: Tone
    """Of the effect of the place."""
    follows_tone: Tone
    """Of the exchange of letters."""
    sentences: tuple[str, ...]
    bars: Markup
    """Quadrants before and after; "" where they are not on record, or no place elsewhere says what "looks" means."""
    taught: bool


def looks_of(facts: Round, roles: Mapping[str, str] | None) -> tuple[Look, ...]:
    """One a skill, taught ones first; empty where it was not measured."""
    if facts.looks is None:
        return ()
    looks = [
        Look(
            title=words(name),
            facts=it,
            region=REGIONS.get(it.region, it.region.replace("_", " ")),
            tone=tone_of(it.verdict),
            follows_tone=tone_of(it.follows),
            sentences=tuple(_sentences(it)),
            bars=_bars(it, words(name)),
            taught=role_of(roles, name) in ("target", ""),
        )
        for name, it in facts.looks.skills.items()
    ]
    return tuple(sorted(looks, key=lambda look: not look.taught))


def _sentences(it: SkillLooks) -> Iterable[str]:
    if it.net_delta is None or it.net_before is None or it.net_after is None:
        yield "Not tested: no part of the picture is known to be the one that matters."
    else:
        p = corrected(it.p, it.p_holm)
        interval = "" if it.low is None else f", 95% interval {nats(it.low, sign=True)} to {nats(it.high, sign=True)}"
        change = f"from {nats(it.net_before)} to {nats(it.net_after)} nats ({nats(it.net_delta, sign=True)}{interval}"
        said = {
            "up": "The answers depend more on the places that matter than before training",
            "down": "The answers depend less on the places that matter than before training",
            "flat": "There is no evidence that the answers depend more, or less, on the places that matter",
        }[tone_of(it.verdict)]
        yield f"{said}, {change}, p = {p_value(p)})."
    if it.sensitive_before is not None and it.sensitive_after is not None and it.sensitive_p is not None:
        yield (
            f"It looks at them in {percent(it.sensitive_after)} of the questions ({percent(it.sensitive_before)} "
            f"before, p = {p_value(it.sensitive_p)})."
        )
    if it.superiority_before is not None and it.superiority_after is not None:
        yield (
            f"The places that matter counted for more than others in {percent(it.superiority_after)} of the "
            f"comparisons ({percent(it.superiority_before)} before; 50% is no difference)."
        )
    yield from _exchange(it)


def _exchange(it: SkillLooks) -> Iterable[str]:
    if it.swap_before is None or it.swap_after is None:
        return
    n = "" if it.swap_n is None else f" of {it.swap_n:,}"
    yield (
        f"When the marks exchanged their letters, the answer followed in {percent(it.swap_after)}{n} questions "
        f"({percent(it.swap_before)} before)."
    )
    if it.swap_both_before is None or it.swap_both_after is None:
        return
    p = corrected(it.swap_p, it.swap_p_holm)
    said = {
        "up": "It was right both times more often than before training",
        "down": "It was right both times less often than before training",
        "flat": "There is no evidence that it is right both times more often, or less often, than before training",
        "": "It was right both times",  # a record older than this verdict
    }[tone_of(it.follows) if it.follows else ""]
    told = "" if p is None else f", p = {p_value(p)}"
    yield f"{said}: in {percent(it.swap_both_after)} of them ({percent(it.swap_both_before)} before{told})."


def _bars(it: SkillLooks, title: str) -> Markup:
    pairs = (("before", it.quadrants_before), ("after", it.quadrants_after))
    # Without places that do not matter, nothing says from where on an answer depends on the one that does.
    if (
        it.net_before is None
        or it.net_after is None
        or any(counts is None or not sum(counts.values()) for _, counts in pairs)
    ):
        return Markup("")
    body, said = "", []
    for row, (when, counts) in enumerate(pairs):
        counts = counts or {}
        y, total, x = 4 + 38 * row, sum(counts.values()), float(_LEFT)
        body += f'<text class="when" x="0" y="{y + 20}">{when}</text>'
        for kind, short in QUADRANTS.items():
            n = counts.get(kind, 0)
            wide = (_WIDTH - _LEFT) * n / total
            if n:
                body += _piece(kind, f"{short}: {n} of {total}", x, y, wide)
            if wide >= _LETTER * len(short) + 8:
                body += f'<text class="q-{kind}" x="{x + 6:.1f}" y="{y + 13}">{escape(short)}</text>'
            if wide >= 34:
                body += f'<text class="q-{kind} n" x="{x + 6:.1f}" y="{y + 26}">{100 * n / total:.0f}%</text>'
            x += wide
        said.append(f"{when}: " + ", ".join(f"{QUADRANTS[kind]} {counts.get(kind, 0)}" for kind in QUADRANTS))
    return svg(body, f"{title}, {'; '.join(said)}", width=_WIDTH, height=78, kind="quadrants")


def _piece(kind: str, title: str, x: float, y: float, wide: float) -> str:
    place = f'x="{x:.1f}" y="{y}" width="{max(1.0, wide - 1.5):.1f}" height="32"'
    return f'<rect class="q q-{kind}" {place}><title>{escape(title)}</title></rect>'
