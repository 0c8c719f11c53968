"""What a comparison will be able to see, stated before anything is trained."""

from __future__ import annotations

from collections.abc import Sequence

from synth.diagnosis.statistics import mcnemar_power
from synth.types import JsonValue, Outcome, Skill

POWER = 0.8
CHANGES = (0.05, 0.10, 0.20)
_STEPS = 12
"""Halvings of the interval of detectable changes: to a tenth of a point."""


def power_json(before: Sequence[Outcome], targets: Sequence[Skill], alpha: float) -> dict[str, JsonValue]:
    """The shape of power.json: for each taught skill what an exact McNemar test finds on its scored items.

    Taken at the worst on both sides: the level is divided by the number of skills (Holm's first step), and as many
    answers change as between two independent guessers, 2 c (1 - c) at chance c.
    """
    scored = [outcome for outcome in before if outcome.correct is not None]
    family = len({outcome.skill for outcome in scored})
    skills: dict[str, JsonValue] = {}
    worst = 0.0
    for skill in targets:
        items = [outcome for outcome in scored if outcome.skill == skill]
        chance = sum(1 / outcome.n_options for outcome in items) / len(items) if items else 0.5
        discordance = 2 * chance * (1 - chance)
        worst = max(worst, discordance)
        skills[str(skill)] = {
            "n": len(items),
            "discordance": round(discordance, 4),
            "detectable": detectable(len(items), discordance, alpha / family),
            "power_at": {
                f"{change:.2f}": round(mcnemar_power(len(items), change, discordance, alpha / family), 3)
                for change in CHANGES
                if change <= discordance
            },
        }
    return {
        "alpha": alpha,
        "power": POWER,
        "comparisons": family,
        "discordance": round(worst, 4),
        "targets": [str(skill) for skill in targets],
        "skills": skills,
    }


def detectable(n: int, discordance: float, alpha: float) -> float | None:
    """Smallest change (share) found in 80 of 100 comparisons, to a tenth of a point; None: not even the largest."""
    low, high = 0.0, discordance
    if not n or mcnemar_power(n, high, discordance, alpha) < POWER:
        return None
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if mcnemar_power(n, middle, discordance, alpha) < POWER:
            low = middle
        else:
            high = middle
    return round(high, 4)
