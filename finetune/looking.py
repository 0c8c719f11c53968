"""Did a model learn to look? Visual sensitivity before and after a training, paired on the same items.

Two measures with a verdict each, tested as one family. How far the answer depends on the marked places beyond places
that do not matter (net KL, nats; a more decided model has more to lose by a blur, which is why the same blur elsewhere
is taken off): it has no direction, so a model that guesses by whatever is there scores high, too. And, where the marks'
letters can be exchanged, whether the answer is right both before and after the exchange: no letter habit and no cue of
the picture gets there. A third, without a verdict: on how many items the answer depends on those places, by each
model's own threshold (a mean of divergences is moved by few items).
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
from pydantic import TypeAdapter

from finetune.grounding import Effect, GroundingCell, Seen, cells_of
from finetune.perturb import RegionKind
from finetune.sensitivity import SensitivityOptions
from synth.diagnosis.blindness import Cell, Quadrants, SensitivityFile
from synth.diagnosis.reading import load_outcomes
from synth.diagnosis.statistics import holm, mcnemar_exact, paired_bootstrap
from synth.errors import RunError
from synth.geometry import generator
from synth.types import JsonValue, Skill

SIGN_FLIPS = 10_000
Verdict: TypeAlias = Literal["rose", "fell", "no evidence", "not tested"]
_EFFECT = TypeAdapter(Effect)


@dataclass(frozen=True, kw_only=True)
class Looking:
    """One skill and kind of region, before and after, on items that have irrelevant places in both."""

    skill: Skill
    region: RegionKind
    n: int
    before: GroundingCell
    after: GroundingCell
    net_delta: float | None
    """Mean change of the net KL, nats; None without irrelevant places."""
    low: float | None
    high: float | None
    """95 % interval: bootstrap over groups."""
    p: float | None
    """Two-sided permutation test: the sign of each group's change is drawn anew."""
    p_holm: float | None
    verdict: Verdict
    """On the net KL."""
    sensitive_p: float | None
    """Exact McNemar test of "sensitive", by each model's own threshold; None without irrelevant places."""
    swap_p: float | None
    """Exact McNemar test of "right before and after the exchange"; None where letters cannot be exchanged."""
    swap_p_holm: float | None
    follows: Verdict
    """On that."""


def looking_of(before: Sequence[Seen], after: Sequence[Seen], alpha: float, seed: int) -> tuple[Looking, ...]:
    """One line a kind of region and skill; the tests of both measures of all lines are one family (Holm).

    Raises RunError where the items differ.
    """
    new = {it.outcome.item_id: it for it in after}
    if new.keys() != {it.outcome.item_id for it in before}:
        raise RunError("sensitivity was not measured on the same items before and after")
    pairs: dict[tuple[RegionKind, Skill], list[tuple[Seen, Seen]]] = defaultdict(list)
    for it in before:
        pairs[it.region, it.outcome.skill].append((it, new[it.outcome.item_id]))
    old_cells = {(cell.region, cell.skill): cell for cell in cells_of(before, alpha, seed)}
    new_cells = {(cell.region, cell.skill): cell for cell in cells_of(after, alpha, seed)}
    lines = [_line(old_cells[key], new_cells[key], members, seed) for key, members in sorted(pairs.items())]
    asked = [p for line in lines for p in (line.p, line.swap_p)]
    found = iter(holm([p for p in asked if p is not None]))
    corrected = [None if p is None else next(found) for p in asked]
    return tuple(
        _judged(line, p, swap_p, alpha) for line, p, swap_p in zip(lines, corrected[::2], corrected[1::2], strict=True)
    )


def _line(before: GroundingCell, after: GroundingCell, pairs: Sequence[tuple[Seen, Seen]], seed: int) -> Looking:
    held = [(a, b) for a, b in pairs if a.controls and b.controls]
    deltas = [_net(b) - _net(a) for a, b in held]
    groups = [a.outcome.group or a.outcome.item_id for a, _ in held]
    rng = generator(seed, "looking", before.region, before.skill)
    low, high = paired_bootstrap(deltas, groups, rng) if held else (None, None)
    swapped = [(_both_right(a), _both_right(b)) for a, b in pairs if a.swap is not None and b.swap is not None]
    flags = [(a.strongest.kl > before.threshold, b.strongest.kl > after.threshold) for a, b in pairs]
    return Looking(
        skill=before.skill,
        region=before.region,
        n=len(pairs),
        before=before,
        after=after,
        net_delta=sum(deltas) / len(deltas) if held else None,
        low=low,
        high=high,
        p=sign_flip_test(deltas, groups, rng) if held else None,
        p_holm=None,
        verdict="not tested",
        sensitive_p=_mcnemar(flags) if before.calibrated and after.calibrated else None,
        swap_p=_mcnemar(swapped) if swapped else None,
        swap_p_holm=None,
        follows="not tested",
    )


def _mcnemar(pairs: Sequence[tuple[bool, bool]]) -> float:
    return mcnemar_exact(sum(b and not a for a, b in pairs), sum(a and not b for a, b in pairs))


def _net(it: Seen) -> float:
    return it.strongest.kl - sum(effect.kl for effect in it.controls) / len(it.controls)


def _both_right(it: Seen) -> bool:
    return bool(it.outcome.correct) and it.swap is not None and it.swap.letter != it.outcome.letter


def sign_flip_test(deltas: Sequence[float], groups: Sequence[str], rng: np.random.Generator) -> float:
    """Two-sided p of a mean change of 0: each group's changes keep or change their sign together."""
    names = {name: i for i, name in enumerate(dict.fromkeys(groups))}
    sums = np.zeros(len(names))
    np.add.at(sums, [names[name] for name in groups], deltas)
    signs = rng.integers(0, 2, size=(SIGN_FLIPS, len(names))) * 2 - 1
    extreme = int((np.abs(signs @ sums) >= abs(sums.sum()) - 1e-12).sum())
    return (1 + extreme) / (1 + SIGN_FLIPS)


def _judged(line: Looking, p: float | None, swap_p: float | None, alpha: float) -> Looking:
    """With the corrected p of both measures and what they say; None: not tested."""
    verdict: Verdict = "not tested" if p is None else "no evidence"
    if p is not None and p < alpha and line.low is not None and line.high is not None:
        verdict = "rose" if line.low > 0 else "fell" if line.high < 0 else "no evidence"
    follows: Verdict = "not tested" if swap_p is None else "no evidence"
    if swap_p is not None and swap_p < alpha and line.before.swap is not None and line.after.swap is not None:
        follows = "rose" if line.after.swap.both_right > line.before.swap.both_right else "fell"
    return replace(line, p_holm=p, verdict=verdict, swap_p_holm=swap_p, follows=follows)


def looking_json(lines: Sequence[Looking]) -> dict[str, JsonValue]:
    """By skill, as a round's sensitivity.json holds it; of several kinds of regions the one with most items."""
    rows: dict[str, JsonValue] = {}
    for line in sorted(lines, key=lambda one: one.n):
        a, b = line.before, line.after
        rows[str(line.skill)] = {
            "region": line.region,
            "n": line.n,
            "net_before": a.net,
            "net_after": b.net,
            "net_delta": line.net_delta,
            "low": line.low,
            "high": line.high,
            "p": line.p,
            "p_holm": line.p_holm,
            "superiority_before": a.superiority,
            "superiority_after": b.superiority,
            "sensitive_before": a.sensitive,
            "sensitive_after": b.sensitive,
            "sensitive_p": line.sensitive_p,
            "swap_n": None if b.swap is None else b.swap.n,
            "swap_before": None if a.swap is None else a.swap.follows,
            "swap_after": None if b.swap is None else b.swap.follows,
            "swap_both_before": None if a.swap is None else a.swap.both_right,
            "swap_both_after": None if b.swap is None else b.swap.both_right,
            "swap_p": line.swap_p,
            "swap_p_holm": line.swap_p_holm,
            "follows": line.follows,
            "quadrants_before": {str(name): n for name, n in a.quadrants.items()},
            "quadrants_after": {str(name): n for name, n in b.quadrants.items()},
            "threshold_before": a.threshold,
            "threshold_after": b.threshold,
            "verdict": line.verdict,
        }
    return rows


def load_seen(folder: Path) -> list[Seen]:
    """What `sensitivity` wrote into a folder. Raises RunError where it is missing or damaged."""
    path = folder / "sensitivity.jsonl"
    try:
        rows = [json.loads(text) for text in path.read_text(encoding="utf-8").splitlines()]
        outcomes = {outcome.item_id: outcome for outcome in load_outcomes(folder / "outcomes.jsonl")}
        return [
            Seen(
                outcome=outcomes[row["item_id"]],
                region=row["region"],
                blurs=_effects(row["blurs"]),
                fill=_EFFECT.validate_python(row["fill"]),
                controls=tuple(_effects(dict(enumerate(row["controls"]))).values()),
                swap=None if row["swap"] is None else _EFFECT.validate_python(row["swap"]),
            )
            for row in rows
        ]
    except (OSError, ValueError, KeyError) as error:
        raise RunError(f"cannot be read: {error}", where=str(path), fix="delete the folder and run again") from None


def _effects(rows: Mapping[object, object]) -> dict[str, Effect]:
    return {str(name): _EFFECT.validate_python(row) for name, row in rows.items()}


def errors_of(seen: Sequence[Seen], options: SensitivityOptions, benchmark: str, fold: int) -> SensitivityFile:
    """What a plan reads, of the items outside a fold."""
    cells = cells_of(seen, options.alpha, options.seed)
    return SensitivityFile(
        model=seen[0].outcome.model,
        benchmark=benchmark,
        cells=tuple(
            Cell(
                skill=cell.skill,
                region=cell.region,
                calibrated=cell.calibrated,
                quadrants=Quadrants(misreads=cell.quadrants["misreads"], blind_wrong=cell.quadrants["blind_wrong"]),
            )
            for cell in cells
        ),
        fold=fold,
    )
