"""The statistics of small benchmarks: intervals, exact tests, correction for several tasks, sample sizes.

All of it is exact or seeded and needs numpy only, so that the command line starts fast; tests hold it against SciPy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Literal, TypeVar

import numpy as np
import numpy.typing as npt

Z95 = NormalDist().inv_cdf(0.975)
Side = Literal["greater", "less"]
P = TypeVar("P", bound=float | None)
_CHUNK = 2_000_000
"""Cells of a bootstrap's table of draws that are held in memory at once."""
_NEGLIGIBLE = 1e-12


def wilson(k: int, n: int, z: float = Z95) -> tuple[float, float]:
    """Wilson's interval of the share k/n (95 % with the default z); (0, 1) where n is 0.

    Wilson (1927), "Probable inference, the law of succession, and statistical inference", JASA 22.
    """
    if not 0 <= k <= n:
        raise ValueError(f"{k} of {n} is no share")
    if n == 0:
        return 0.0, 1.0
    p = k / n
    centre = p + z * z / (2 * n)
    reach = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    # The bounds of 0 of n and n of n are 0 and 1; rounding may leave them by a hair.
    low = 0.0 if k == 0 else (centre - reach) / scale
    high = 1.0 if k == n else (centre + reach) / scale
    return low, high


def binomial_p(k: int, n: int, chance: float, side: Side = "greater") -> float:
    """Exact one-sided p of k or more (or fewer) successes of n at a chance in 0..1."""
    return poisson_binomial_p(k, [chance] * n, side)


def poisson_binomial_p(k: int, chances: Sequence[float], side: Side = "greater") -> float:
    """Exact one-sided p of k successes where each item has its own chance (items with 2, 3 or 4 options).

    The distribution is built by convolution, one item at a time.
    """
    n = len(chances)
    if not 0 <= k <= n:
        raise ValueError(f"{k} of {n} is no count")
    mass = np.zeros(n + 1)
    mass[0] = 1.0
    for i, chance in enumerate(chances, start=1):
        mass[1 : i + 1] = mass[1 : i + 1] * (1 - chance) + mass[:i] * chance
        mass[0] *= 1 - chance
    tail = mass[k:] if side == "greater" else mass[: k + 1]
    return float(min(1.0, tail.sum()))


def mcnemar_exact(gains: int, losses: int) -> float:
    """Two-sided exact McNemar p: gains and losses on the same items, under even odds. McNemar (1947)."""
    n = gains + losses
    if gains < 0 or losses < 0:
        raise ValueError("gains and losses are counts")
    if n == 0:
        return 1.0
    # In logarithms: 2 ** -n alone underflows beyond a thousand changed items.
    whole = math.lgamma(n + 1) - n * math.log(2)
    logs = [whole - math.lgamma(i + 1) - math.lgamma(n - i + 1) for i in range(min(gains, losses) + 1)]
    return min(1.0, 2 * math.fsum(map(math.exp, logs)))


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p values in the order given, for a family of tests. Holm (1979), Scand. J. Statist. 6."""
    adjusted = [0.0] * len(p_values)
    running = 0.0
    for rank, i in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        running = max(running, min(1.0, p_values[i] * (len(p_values) - rank)))
        adjusted[i] = running
    return adjusted


def corrected(p: P, p_holm: float | None) -> P | float:
    """The p to tell: adjusted for its family of tests where it was."""
    return p if p_holm is None else p_holm


def bootstrap_means(
    deltas: Sequence[float], groups: Sequence[str], rng: np.random.Generator, n: int = 10_000
) -> npt.NDArray[np.float64]:
    """Means of n resamples of the deltas, shape (n,).

    Whole groups are drawn; "" makes an item its own group. Groups of the same sum and size are interchangeable, so the
    draw is one of how many of each kind: the same distribution as drawing names, at a hundredth of the cost.
    """
    if len(deltas) != len(groups) or not deltas:
        raise ValueError(f"{len(deltas)} deltas, {len(groups)} groups")
    names = [group or f"\0{i}" for i, group in enumerate(groups)]
    index = {name: i for i, name in enumerate(dict.fromkeys(names))}
    member = np.array([index[name] for name in names])
    sums = np.bincount(member, weights=np.asarray(deltas, dtype=np.float64))
    sizes = np.bincount(member).astype(np.float64)
    kinds, counts = np.unique(np.stack([sums, sizes]), axis=1, return_counts=True)
    step = max(1, _CHUNK // len(counts))
    means = []
    for start in range(0, n, step):
        draws = rng.multinomial(len(sums), counts / len(sums), size=min(step, n - start)).astype(np.float64)
        means.append((draws @ kinds[0]) / (draws @ kinds[1]))
    return np.concatenate(means)


def paired_bootstrap(
    deltas: Sequence[float], groups: Sequence[str], rng: np.random.Generator, n: int = 10_000, level: float = 0.95
) -> tuple[float, float]:
    """Percentile interval of the mean change; `deltas` are -1, 0 or 1 an item, clustered by group (shared image)."""
    return percentile_interval(bootstrap_means(deltas, groups, rng, n), level)


def macro_bootstrap(
    strata: Sequence[tuple[Sequence[float], Sequence[str]]],
    rng: np.random.Generator,
    n: int = 10_000,
    level: float = 0.95,
) -> tuple[float, float]:
    """Percentile interval of the unweighted mean over strata, each (deltas, groups) resampled within itself."""
    if not strata:
        raise ValueError("no strata")
    return percentile_interval(
        np.mean([bootstrap_means(deltas, groups, rng, n) for deltas, groups in strata], axis=0), level
    )


def percentile_interval(values: npt.NDArray[np.float64], level: float = 0.95) -> tuple[float, float]:
    """The middle `level` of the values."""
    tail = 50 * (1 - level)
    low, high = np.percentile(values, [tail, 100 - tail])
    return float(low), float(high)


def normalised(accuracy: float, chance: float, top: float = 1.0) -> float:
    """0 at chance, 1 at `top` (human accuracy or 1); negative below chance. NaN-free: 0 where top is at chance."""
    return (accuracy - chance) / (top - chance) if top > chance else 0.0


def balanced_accuracy(pairs: Sequence[tuple[str, str | None]]) -> float | None:
    """Mean recall over the gold letters of (gold, letter) pairs; no letter counts as a miss. None without pairs."""
    hits: dict[str, list[bool]] = {}
    for gold, letter in pairs:
        hits.setdefault(gold, []).append(gold == letter)
    return math.fsum(sum(h) / len(h) for h in hits.values()) / len(hits) if hits else None


def paired_sample_size(delta: float, discordance: float, alpha: float = 0.05, power: float = 0.8) -> int:
    """Items for which a paired change is found: `delta` in 0..1, at a share `discordance` of changed answers.

    Connor (1987), "Sample size for testing differences in proportions for the paired-sample design", Biometrics 43.
    Raises ValueError where the change is larger than the share that changes.
    """
    if not 0 < abs(delta) <= discordance <= 1:
        raise ValueError(f"a change of {delta} cannot come of {discordance} changed answers")
    z_alpha = NormalDist().inv_cdf(1 - alpha / 2)
    z_power = NormalDist().inv_cdf(power)
    root = z_alpha * math.sqrt(discordance) + z_power * math.sqrt(discordance - delta * delta)
    return math.ceil(root * root / (delta * delta))


def mcnemar_power(n: int, delta: float, discordance: float, alpha: float = 0.05) -> float:
    """Probability that the exact McNemar test finds a change of `delta` on n items at a share `discordance` of changes.

    Exact: summed over how many answers change (binomial) and how many of those are gains (binomial again). At the n of
    `paired_sample_size`, which takes the normal distribution, it falls some points short, since the exact test is
    conservative. Raises ValueError as that function does.
    """
    if not 0 < abs(delta) <= discordance <= 1:
        raise ValueError(f"a change of {delta} cannot come of {discordance} changed answers")
    log_factorial = np.array([math.lgamma(i + 1) for i in range(n + 1)])
    gain = (discordance + abs(delta)) / (2 * discordance)
    power = 0.0
    for changed, weight in enumerate(_binomial(n, discordance, log_factorial)):
        if weight < _NEGLIGIBLE:
            continue
        rejected = 2 * np.cumsum(_binomial(changed, 0.5, log_factorial)) <= alpha
        least = int(rejected[: changed // 2 + 1].sum())  # the test rejects where the smaller count is below this
        gains = _binomial(changed, gain, log_factorial)
        power += weight * float(gains[:least].sum() + gains[changed + 1 - least :].sum())
    return float(power)


def _binomial(n: int, p: float, log_factorial: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Probabilities of 0 … n successes, shape (n + 1,)."""
    k = np.arange(n + 1)
    if p == 1.0:
        return np.asarray(k == n, dtype=np.float64)
    ways = log_factorial[n] - log_factorial[k] - log_factorial[n - k]
    return np.asarray(np.exp(ways + k * math.log(p) + (n - k) * math.log1p(-p)))
