"""May the model be trusted to know when it is wrong? Signals of confidence as a reason to abstain.

A signal ranks the items; its AUROC is the probability that a right answer ranks above a wrong one (0.5: it knows
nothing). The risk at a coverage is the share of wrong answers among the most confident items. El-Yaniv and Wiener
(2010), "On the foundations of noise-free selective classification", JMLR 11.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from synth.diagnosis.statistics import percentile_interval
from synth.geometry import generator
from synth.types import Outcome

COVERAGES = tuple(k / 10 for k in range(1, 11))
RESAMPLES = 1000
LEAST = 100
"""Items below which an AUROC is printed as a rough one."""
Values = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Signal:
    """One signal of confidence."""

    auroc: float | None
    """None where all answers are right, or all wrong."""
    low: float | None
    high: float | None
    """95 % interval: bootstrap over groups."""
    risk: Mapping[str, float]
    """Coverage ("0.5": the more confident half) -> share of wrong answers among what is answered."""
    area: float
    """Mean risk over all coverages."""


@dataclass(frozen=True, kw_only=True)
class Selective:
    """Signals side by side, on the same items."""

    n: int
    n_wrong: int
    rough: bool
    """Too few items for a claim."""
    signals: Mapping[str, Signal]


def selective(outcomes: Sequence[Outcome], extra: Mapping[str, Mapping[str, float]], seed: int) -> Selective:
    """Judge the signals on the scored items that all of them know.

    `max_probability` and `margin` come from the option probabilities, renormalised over the options; `option_mass` is
    their sum before. `extra` brings others, name -> item id -> value (larger: more confident).
    """
    rows = [
        outcome
        for outcome in outcomes
        if outcome.correct is not None
        and outcome.probabilities
        and all(outcome.item_id in values for values in extra.values())
    ]
    right = np.array([bool(outcome.correct) for outcome in rows])
    masses = np.array([outcome.option_mass for outcome in rows], dtype=np.float64)
    scale = np.maximum(masses, np.finfo(np.float64).tiny)
    signals: dict[str, Values] = {
        "max_probability": np.array([max(o.probabilities.values()) for o in rows], dtype=np.float64) / scale,
        "margin": np.array([o.margin for o in rows], dtype=np.float64) / scale,
        "option_mass": masses,
    }
    for name, values in extra.items():
        signals[name] = np.array([values[outcome.item_id] for outcome in rows], dtype=np.float64)
    groups = [outcome.group or outcome.item_id for outcome in rows]
    return Selective(
        n=len(rows),
        n_wrong=int((~right).sum()),
        rough=len(rows) < LEAST,
        signals={name: _signal(values, right, groups, seed) for name, values in signals.items()} if rows else {},
    )


def auroc(values: Values, right: npt.NDArray[np.bool_]) -> float | None:
    """Probability that a right answer's value is above a wrong one's, ties half; None without one of each."""
    n_right, n_wrong = int(right.sum()), int((~right).sum())
    if not n_right or not n_wrong:
        return None
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    return float((ranks[right].sum() - n_right * (n_right + 1) / 2) / (n_right * n_wrong))


def risks(values: Values, right: npt.NDArray[np.bool_]) -> Values:
    """Share of wrong answers among the k most confident items, k = 1 … n; items of one value share their risk."""
    order = np.argsort(-values, kind="stable")
    ordered, wrong = values[order], (~right[order]).astype(np.float64)
    # Within a tie every order is as likely: its items are wrong as often as the tie is on average.
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    sizes = np.diff(np.r_[starts, len(ordered)])
    wrong = np.repeat(np.add.reduceat(wrong, starts) / sizes, sizes)
    return np.asarray(np.cumsum(wrong) / np.arange(1, len(wrong) + 1))


def _signal(values: Values, right: npt.NDArray[np.bool_], groups: Sequence[str], seed: int) -> Signal:
    found = auroc(values, right)
    curve = risks(values, right)
    low, high = (None, None) if found is None else _interval(values, right, groups, seed)
    return Signal(
        auroc=found,
        low=low,
        high=high,
        risk={f"{c:.1f}": float(curve[max(1, round(c * len(curve))) - 1]) for c in COVERAGES},
        area=float(curve.mean()),
    )


def _interval(
    values: Values, right: npt.NDArray[np.bool_], groups: Sequence[str], seed: int
) -> tuple[float | None, float | None]:
    names = {name: i for i, name in enumerate(dict.fromkeys(groups))}
    member = np.array([names[name] for name in groups])
    items = [np.flatnonzero(member == i) for i in range(len(names))]
    rng = generator(seed, "auroc")
    found = []
    for _ in range(RESAMPLES):
        drawn = np.concatenate([items[i] for i in rng.integers(len(items), size=len(items))])
        value = auroc(values[drawn], right[drawn])
        if value is not None:
            found.append(value)
    return percentile_interval(np.array(found)) if found else (None, None)


def format_selective(it: Selective) -> str:
    """One line a signal."""
    lines = [f"{it.n} items, {it.n_wrong} wrong" + (f" (fewer than {LEAST}: rough)" if it.rough else "")]
    for name, signal in it.signals.items():
        if signal.auroc is None or signal.low is None or signal.high is None:
            lines.append(f"  {name:16} no AUROC: all answers are right, or all wrong")
            continue
        lines.append(
            f"  {name:16} AUROC {signal.auroc:.3f} [{signal.low:.3f}, {signal.high:.3f}], wrong at coverage "
            f"0.5 {100 * signal.risk['0.5']:.1f} %, at 1.0 {100 * signal.risk['1.0']:.1f} %"
        )
    return "\n".join(lines)
