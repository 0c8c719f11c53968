"""A profile for a terminal of 120 columns."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator

from synth.diagnosis.statistics import mcnemar_power, normalised
from synth.findings import CategoryProfile, Profile

WIDTH = 120
_HEAD = ("category", "n", "accuracy", "95 %", "chance", "human", "gap", "way", "answered", "flags")
_ASSUMED = 0.20


def format_table(profile: Profile) -> str:
    """The profile in lines of at most 120 characters, flags and warnings wrapped.

    Shares are in percent, the gap in points to human accuracy (to 100 where unknown), the way in percent from chance
    (0) to people.
    """
    lines = [_HEAD, *(_line(category) for category in profile.categories)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(_HEAD) - 1)]
    body: list[str] = []
    for line in lines:
        cells = [line[0].ljust(widths[0]), *(line[i].rjust(widths[i]) for i in range(1, len(widths)))]
        start = "  ".join(cells) + "  "
        body += _wrapped(line[-1], start, " " * len(start)) or [start.rstrip()]
    title = f"{profile.model} on {profile.benchmark}" if profile.benchmark else profile.model
    told: list[str] = []
    for text in _told(profile):
        told += _wrapped(text, "", "  ")
    for warning in profile.warnings:
        told += _wrapped(warning, "warning: ", "  ")
    return "\n".join([title, *body, *told])


def _wrapped(text: str, first: str, rest: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=first, subsequent_indent=rest, break_long_words=False)


def _told(profile: Profile) -> Iterator[str]:
    scored = [category for category in profile.categories if category.n]
    if not scored:
        yield "nothing scored"
        return
    human = f", human {_percent(profile.human)}" if profile.human is not None else ""
    yield (
        f"mean over categories {_percent(profile.macro)} (over items {_percent(profile.micro)}), "
        f"chance {_percent(profile.chance)}{human}"
    )
    kinds: Counter[str] = Counter()
    for category in scored:
        kinds.update(category.errors)
    if kinds:
        parts = ", ".join(f"{n} {kind.replace('_', ' ')}" for kind, n in kinds.most_common())
        yield f"{kinds.total()} wrong: {parts}"
    if profile.routing:
        yield f"send elsewhere: {', '.join(profile.routing)}"
    if profile.fold is not None:
        yield f"without the fold {profile.fold} of each category, which is held out"
    largest = max(scored, key=lambda category: category.n)
    power = mcnemar_power(largest.n, 0.05, _ASSUMED)
    yield (
        f"power: a change of +5 points shows in {100 * power:.0f} of 100 comparisons of {largest.n} items (the largest "
        f"category, {100 * _ASSUMED:.0f} % of the answers changing)"
    )


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"


def _line(it: CategoryProfile) -> tuple[str, ...]:
    lettered = ("collapsed", "one_letter")
    told = " ".join(f"{flag}({it.majority_letter})" if flag in lettered else flag for flag in it.told_flags)
    human = "-" if it.human is None else _percent(it.human)
    if not it.n:
        return (it.name, "0", "-", "-", _percent(it.chance), human, "-", "-", f"0 of {it.n_unscored}", told)
    answered = "all" if it.n_answered == it.n else f"{_percent(it.answered)} of {it.n_answered}"
    gap, way = f"{100 * (it.top - it.accuracy):.1f}", f"{100 * normalised(it.accuracy, it.chance, it.top):.0f}"
    score = (_percent(it.accuracy), f"{_percent(it.low)}-{_percent(it.high)}", _percent(it.chance))
    return (it.name, str(it.n), *score, human, gap, way, answered, told)
