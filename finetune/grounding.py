"""What sensitivity says of a model: cells of region kind and skill, held against irrelevant places, and quadrants."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from finetune.perturb import RegionKind
from synth.diagnosis.statistics import holm, paired_bootstrap, wilson
from synth.geometry import generator
from synth.types import JsonValue, Outcome, Skill

Quadrant: TypeAlias = Literal["grounded_right", "blind_right", "misreads", "blind_wrong"]
Values: TypeAlias = npt.NDArray[np.float64]

FIXED = 0.05
"""Nats: the threshold of the visual sensitivity index, shown beside the calibrated one."""
QUANTILE = 95
"""Percentile of the irrelevant places' KL above which an item is sensitive."""
CONFIDENT = 0.9
PERMUTATIONS = 10_000
FILL = "fill"
SWAP = "swap"


@dataclass(frozen=True, kw_only=True)
class Effect:
    """What one change of the pictures does to the next token."""

    kl: float
    """KL(p || p') over the vocabulary, nats."""
    kl_options: float
    """The same over the options and one bin for all other tokens."""
    js: float
    """Jensen-Shannon divergence over these bins, 0 … ln 2."""
    delta_gold: float | None
    """Change of the right letter's log-probability; None where the key is hidden. For `swap` it is the old key's."""
    letter: str
    """The likeliest option now."""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """One item under all changes of its pictures."""

    outcome: Outcome
    """On the pictures as they are."""
    region: RegionKind
    blurs: Mapping[str, Effect]
    """Blur of the region by its strength, weakest first; the last one is the test."""
    fill: Effect
    controls: tuple[Effect, ...]
    """The strongest blur in irrelevant places of the same shape and area; empty where there is no room for them."""
    swap: Effect | None
    """The marks' letters exchanged, where they can be."""

    @property
    def strongest(self) -> Effect:
        """The blur that is tested."""
        return list(self.blurs.values())[-1]


@dataclass(frozen=True, kw_only=True)
class Swapped:
    """Items whose marks exchanged their letters, so that the right answer is the other one."""

    n: int
    follows: float
    """Share whose letter changes with them; low and high: Wilson's 95 % interval."""
    low: float
    high: float
    both_right: float
    """Share right before and after: nobody gets there by always saying one letter, or by one cue of the picture."""


@dataclass(frozen=True, kw_only=True)
class GroundingCell:
    """One skill, by one kind of region."""

    skill: Skill
    region: RegionKind
    n: int
    n_controlled: int
    """Items with irrelevant places."""
    median_kl: float
    median_js: float
    median_delta_gold: float | None
    median_fill: float
    """KL of the flat fill."""
    median_control: float | None
    net: float | None
    """Mean over the items of KL at the region minus the mean KL elsewhere, nats."""
    net_low: float | None
    net_high: float | None
    """95 % interval: bootstrap over groups."""
    superiority: float | None
    """Probability that the region's KL exceeds that of an irrelevant place of the same item; 0.5: no difference."""
    p: float | None
    """One-sided permutation test of the superiority; None without controls."""
    p_holm: float | None
    verdict: Literal["depends on the region", "no evidence", "not tested"]
    threshold: float
    """KL above which an item counts as sensitive."""
    calibrated: bool
    """From irrelevant places; else the fixed one, which nothing here supports."""
    sensitive: float
    sensitive_low: float
    sensitive_high: float
    """Share of sensitive items with Wilson's 95 % interval."""
    sensitive_fixed: float
    """Share above the fixed threshold of 0.05."""
    ladder: Mapping[str, float]
    """Blur -> median KL."""
    changed: Mapping[str, float]
    """Blur -> share of letters that change."""
    quadrants: Mapping[Quadrant, int]
    """Scored items. misreads: wrong although sensitive; blind_wrong: wrong and insensitive."""
    misreads: float
    blind_wrong: float
    """Shares of the scored items."""
    confident_blind_wrong: int
    """Of these, answers with a probability of 0.9 or more among the options."""
    swap: Swapped | None


def cells_of(seen: Sequence[Seen], alpha: float, seed: int) -> tuple[GroundingCell, ...]:
    """One cell a kind of region and skill; the tests of all cells are one family (Holm)."""
    groups: dict[tuple[RegionKind, Skill], list[Seen]] = defaultdict(list)
    for it in seen:
        groups[it.region, it.outcome.skill].append(it)
    cells = [_cell(skill, region, members, seed) for (region, skill), members in sorted(groups.items())]
    corrected = iter(holm([cell.p for cell in cells if cell.p is not None]))
    return tuple(cell if cell.p is None else _judged(cell, next(corrected), alpha) for cell in cells)


def _judged(cell: GroundingCell, p: float, alpha: float) -> GroundingCell:
    return replace(cell, p_holm=p, verdict="depends on the region" if p < alpha else "no evidence")


def _cell(skill: Skill, region: RegionKind, seen: Sequence[Seen], seed: int) -> GroundingCell:
    kl = np.array([it.strongest.kl for it in seen])
    controlled = [it for it in seen if it.controls]
    controls = np.array([[effect.kl for effect in it.controls] for it in controlled])
    tested = np.array([it.strongest.kl for it in controlled])
    groups = [it.outcome.group or it.outcome.item_id for it in controlled]
    net = tested - controls.mean(axis=1) if controlled else None
    low, high = (None, None)
    superiority = p = None
    if net is not None:
        rng = generator(seed, "grounding", region, skill)
        low, high = paired_bootstrap(net.tolist(), groups, rng)
        superiority, p = permutation_test(tested, controls, groups, rng)
    threshold = float(np.percentile(controls, QUANTILE)) if controlled else FIXED
    n_sensitive = int((kl > threshold).sum())
    share_low, share_high = wilson(n_sensitive, len(seen))
    quadrants = _quadrants(seen, threshold)
    scored = max(1, sum(quadrants.values()))
    deltas = [it.strongest.delta_gold for it in seen if it.strongest.delta_gold is not None]
    names = list(seen[0].blurs)
    return GroundingCell(
        skill=skill,
        region=region,
        n=len(seen),
        n_controlled=len(controlled),
        median_kl=float(np.median(kl)),
        median_js=float(np.median([it.strongest.js for it in seen])),
        median_delta_gold=float(np.median(deltas)) if deltas else None,
        median_fill=float(np.median([it.fill.kl for it in seen])),
        median_control=float(np.median(controls)) if controlled else None,
        net=None if net is None else float(net.mean()),
        net_low=low,
        net_high=high,
        superiority=superiority,
        p=p,
        p_holm=None,
        verdict="not tested",
        threshold=threshold,
        calibrated=bool(controlled),
        sensitive=n_sensitive / len(seen),
        sensitive_low=share_low,
        sensitive_high=share_high,
        sensitive_fixed=float((kl > FIXED).mean()),
        ladder={name: float(np.median([it.blurs[name].kl for it in seen])) for name in names},
        changed={name: sum(it.blurs[name].letter != it.outcome.letter for it in seen) / len(seen) for name in names},
        quadrants=quadrants,
        misreads=quadrants["misreads"] / scored,
        blind_wrong=quadrants["blind_wrong"] / scored,
        confident_blind_wrong=sum(_confident(it) for it in seen if _quadrant(it, threshold) == "blind_wrong"),
        swap=_swapped(seen),
    )


def permutation_test(
    region: Values, elsewhere: Values, groups: Sequence[str], rng: np.random.Generator
) -> tuple[float, float]:
    """(superiority, one-sided p) of `region` (n,) over `elsewhere` (n, k).

    Which of an item's k + 1 places is called the region is drawn anew, alike for all items of a group.
    """
    places = np.column_stack([region, elsewhere])
    # What each place's superiority over the others of its item would be, were it the region.
    above = (places[:, :, None] > places[:, None, :]) + 0.5 * (places[:, :, None] == places[:, None, :])
    share = (above.sum(axis=2) - 0.5) / elsewhere.shape[1]
    names = {name: i for i, name in enumerate(dict.fromkeys(groups))}
    sums = np.zeros((len(names), places.shape[1]))
    np.add.at(sums, [names[name] for name in groups], share)
    observed = sums[:, 0].sum()
    drawn = rng.integers(places.shape[1], size=(PERMUTATIONS, len(names)))
    null = sums[np.arange(len(names)), drawn].sum(axis=1)
    p = (1 + int((null >= observed - 1e-9).sum())) / (1 + PERMUTATIONS)
    return float(observed / len(region)), p


def _quadrant(it: Seen, threshold: float) -> Quadrant | None:
    sensitive = it.strongest.kl > threshold
    if it.outcome.correct is None:
        return None
    if it.outcome.correct:
        return "grounded_right" if sensitive else "blind_right"
    return "misreads" if sensitive else "blind_wrong"


def _quadrants(seen: Sequence[Seen], threshold: float) -> dict[Quadrant, int]:
    counts = Counter(_quadrant(it, threshold) for it in seen)
    names: tuple[Quadrant, ...] = ("grounded_right", "blind_right", "misreads", "blind_wrong")
    return {name: counts[name] for name in names}


def _confident(it: Seen) -> bool:
    probabilities = it.outcome.probabilities
    return max(probabilities.values()) >= CONFIDENT * sum(probabilities.values())


def _swapped(seen: Sequence[Seen]) -> Swapped | None:
    pairs = [(it.outcome, it.swap.letter) for it in seen if it.swap is not None and it.outcome.gold is not None]
    if not pairs:
        return None
    follows = sum(outcome.letter != letter for outcome, letter in pairs)
    low, high = wilson(follows, len(pairs))
    return Swapped(
        n=len(pairs),
        follows=follows / len(pairs),
        low=low,
        high=high,
        # With two options, right after the exchange is the letter that was wrong before.
        both_right=sum(bool(outcome.correct) and outcome.letter != letter for outcome, letter in pairs) / len(pairs),
    )


def format_cells(cells: Sequence[GroundingCell]) -> str:
    """One block a kind of region, one line a skill; KL in nats, shares in percent."""
    lines: list[str] = []
    head = f"{'skill':26}{'n':>5}{'KL':>8}{'elsewhere':>11}{'above it':>10}{'p Holm':>9}{'sensitive':>11}"
    head += f"{'> 0.05':>8}{'misreads':>10}{'blind wrong':>13}{'follows swap':>14}"
    for region in dict.fromkeys(cell.region for cell in cells):
        lines += [f"region: {region.replace('_', ' ')}", head]
        for it in (cell for cell in cells if cell.region == region):
            control = "-" if it.median_control is None else f"{it.median_control:.3f}"
            above = "-" if it.superiority is None else f"{100 * it.superiority:.0f}"
            p = "-" if it.p_holm is None else f"{it.p_holm:.2g}"
            swap = "-" if it.swap is None else f"{100 * it.swap.follows:.0f} of {it.swap.n}"
            mark = "" if it.calibrated else "*"
            lines.append(
                f"{it.skill:26}{it.n:>5}{it.median_kl:>8.3f}{control:>11}{above:>10}{p:>9}"
                f"{100 * it.sensitive:>10.0f}{mark or ' '}{100 * it.sensitive_fixed:>8.0f}{100 * it.misreads:>10.0f}"
                f"{100 * it.blind_wrong:>13.0f}{swap:>14}"
            )
    if any(not cell.calibrated for cell in cells):
        lines.append("* by the fixed threshold: there is no irrelevant place to calibrate it on")
    return "\n".join(lines)


def row_of(it: Seen) -> dict[str, JsonValue]:
    """An item as a line of sensitivity.jsonl."""
    return {
        "item_id": it.outcome.item_id,
        "skill": str(it.outcome.skill),
        "region": it.region,
        "letter": it.outcome.letter,
        "correct": it.outcome.correct,
        "blurs": {name: asdict(effect) for name, effect in it.blurs.items()},
        FILL: asdict(it.fill),
        "controls": [asdict(effect) for effect in it.controls],
        SWAP: None if it.swap is None else asdict(it.swap),
    }
