"""Our statistics against SciPy, published tables and simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats as reference

from synth.diagnosis import statistics as st


@pytest.mark.parametrize(("k", "n"), [(0, 10), (10, 10), (74, 124), (1, 3), (500, 1901)])
def test_wilson(k: int, n: int) -> None:
    interval = reference.binomtest(k, n).proportion_ci(0.95, method="wilson")
    assert st.wilson(k, n) == pytest.approx((interval.low, interval.high), abs=1e-12)


def test_wilson_known_and_empty() -> None:
    low, high = st.wilson(74, 124)
    assert (round(100 * low, 1), round(100 * high, 1)) == (50.9, 67.9)
    assert st.wilson(0, 0) == (0.0, 1.0)
    with pytest.raises(ValueError, match="3 of 2"):
        st.wilson(3, 2)


@pytest.mark.parametrize(("k", "n", "chance"), [(50, 150, 0.25), (0, 20, 0.5), (20, 20, 0.5), (40, 134, 1 / 3)])
def test_binomial(k: int, n: int, chance: float) -> None:
    for side in ("greater", "less"):
        expected = reference.binomtest(k, n, chance, alternative=side).pvalue
        assert st.binomial_p(k, n, chance, side) == pytest.approx(expected, rel=1e-9)


def test_poisson_binomial_is_the_count_over_all_cases() -> None:
    chances = [0.5, 0.25, 1 / 3, 0.5]
    mass = np.zeros(5)
    for case in np.ndindex(2, 2, 2, 2):
        mass[sum(case)] += math.prod(c if hit else 1 - c for c, hit in zip(chances, case, strict=True))
    for k in range(5):
        assert st.poisson_binomial_p(k, chances) == pytest.approx(mass[k:].sum())
        assert st.poisson_binomial_p(k, chances, "less") == pytest.approx(mass[: k + 1].sum())


@pytest.mark.parametrize(("gains", "losses"), [(22, 10), (80, 9), (62, 2), (5, 5), (0, 0), (900, 700)])
def test_mcnemar(gains: int, losses: int) -> None:
    n = gains + losses
    expected = reference.binomtest(min(gains, losses), n, 0.5).pvalue if n else 1.0
    assert st.mcnemar_exact(gains, losses) == pytest.approx(expected, rel=1e-9)
    assert st.mcnemar_exact(gains, losses) == st.mcnemar_exact(losses, gains)


def test_mcnemar_known() -> None:
    assert round(st.mcnemar_exact(22, 10), 4) == 0.0501


def test_holm() -> None:
    assert st.holm([0.001, 0.012, 0.03, 0.04, 0.2]) == pytest.approx([0.005, 0.048, 0.09, 0.09, 0.2])
    assert st.holm([0.2, 0.001, 0.04, 0.012, 0.03]) == pytest.approx([0.2, 0.005, 0.09, 0.048, 0.09])
    assert st.holm([]) == []
    assert st.holm([0.9, 0.8]) == [1.0, 1.0]


def test_bootstrap_agrees_with_theory_and_is_seeded() -> None:
    deltas = np.random.default_rng(5).choice([-1, 0, 1], 600, p=[0.1, 0.7, 0.2]).tolist()
    groups = [""] * 600
    low, high = st.paired_bootstrap(deltas, groups, np.random.default_rng(1))
    reach = 1.96 * np.std(deltas) / np.sqrt(600)
    assert (low, high) == pytest.approx((np.mean(deltas) - reach, np.mean(deltas) + reach), abs=0.01)
    assert (low, high) == st.paired_bootstrap(deltas, groups, np.random.default_rng(1))


def test_bootstrap_of_clusters_is_wider_and_draws_names() -> None:
    """Ten questions on one image are not ten images; the shortcut by kinds draws what drawing names would draw."""
    rng = np.random.default_rng(2)
    per_group = rng.choice([-1, 0, 1], 60, p=[0.2, 0.5, 0.3])
    deltas = np.repeat(per_group, 10).tolist()
    groups = np.repeat([f"g{i}" for i in range(60)], 10).tolist()
    low, high = st.paired_bootstrap(deltas, groups, np.random.default_rng(1))
    alone = st.paired_bootstrap(deltas, [""] * 600, np.random.default_rng(1))
    assert high - low > 2.5 * (alone[1] - alone[0])
    names = [float(per_group[rng.integers(0, 60, 60)].mean()) for _ in range(4000)]
    assert (low, high) == pytest.approx(np.percentile(names, [2.5, 97.5]), abs=0.02)


def test_macro_bootstrap_weighs_tasks_alike() -> None:
    strata = [([1.0] * 500, [""] * 500), ([0.0] * 10, [""] * 10)]
    assert st.macro_bootstrap(strata, np.random.default_rng(0)) == pytest.approx((0.5, 0.5))


def test_bootstrap_refuses_nonsense() -> None:
    with pytest.raises(ValueError, match="groups"):
        st.paired_bootstrap([1.0], [], np.random.default_rng(0))


def test_normalised() -> None:
    assert st.normalised(0.5, 0.5) == 0
    assert st.normalised(0.9, 0.5, 0.9) == 1
    assert st.normalised(0.25, 0.5) == -0.5
    assert st.normalised(0.7, 0.5, 0.5) == 0


def test_balanced_accuracy_of_a_constant_answer() -> None:
    assert st.balanced_accuracy([("A", "B")] * 59 + [("B", "B")] * 74) == 0.5
    assert st.balanced_accuracy([("A", "A"), ("B", None)]) == 0.5
    assert st.balanced_accuracy([]) is None


@pytest.mark.parametrize(
    ("delta", "discordance", "n"),
    [(0.03, 0.1, 870), (0.05, 0.2, 626), (0.05, 0.3, 940), (0.1, 0.3, 234), (0.15, 0.2, 68), (0.03, 0.5, 4359)],
)
def test_paired_sample_size(delta: float, discordance: float, n: int) -> None:
    assert st.paired_sample_size(delta, discordance) == n
    with pytest.raises(ValueError, match="cannot come"):
        st.paired_sample_size(discordance + 0.01, discordance)


@pytest.mark.parametrize(
    ("n", "delta", "at_20", "at_30"),
    [
        (150, 0.05, 0.21, 0.16),
        (300, 0.05, 0.45, 0.31),
        (500, 0.05, 0.68, 0.50),
        (800, 0.05, 0.88, 0.71),
        (1000, 0.05, 0.94, 0.82),
        (150, 0.10, 0.74, 0.57),
        (300, 0.10, 0.97, 0.87),
    ],
)
def test_power_agrees_with_simulations(n: int, delta: float, at_20: float, at_30: float) -> None:
    """Simulated figures for the exact test, made elsewhere; a simulation is good to a point or two."""
    assert st.mcnemar_power(n, delta, 0.2) == pytest.approx(at_20, abs=0.012)
    assert st.mcnemar_power(n, delta, 0.3) == pytest.approx(at_30, abs=0.012)


def test_power_is_the_sum_over_all_tables() -> None:
    """Every table of 30 items by brute force, with SciPy's test and probabilities."""
    n, delta, discordance = 30, 0.25, 0.4
    shares = [(discordance + delta) / 2, (discordance - delta) / 2, 1 - discordance]
    power = 0.0
    for gains in range(n + 1):
        for losses in range(n + 1 - gains):
            changed = gains + losses
            if changed and reference.binomtest(min(gains, losses), changed, 0.5).pvalue <= 0.05:
                power += reference.multinomial.pmf([gains, losses, n - changed], n, shares)
    assert st.mcnemar_power(n, delta, discordance) == pytest.approx(power, rel=1e-9)
    assert st.mcnemar_power(n, -delta, discordance) == pytest.approx(power, rel=1e-9)


def test_power_at_the_bounds() -> None:
    assert st.mcnemar_power(5, 1.0, 1.0) == 0.0  # five changes of five cannot reach 0.05
    assert st.mcnemar_power(6, 1.0, 1.0) == pytest.approx(1.0)
    assert 0.75 < st.mcnemar_power(st.paired_sample_size(0.05, 0.2), 0.05, 0.2) < 0.80
    with pytest.raises(ValueError, match="cannot come"):
        st.mcnemar_power(100, 0.3, 0.2)
