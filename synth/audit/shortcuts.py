"""Can it be answered without looking? Blind solvers, one a cue, in cross-validation over source groups.

Whatever a solver gets above chance, a model can learn without looking (test-set stress-testing of arXiv 2511.04655,
here on training pairs). A cue leaks where its accuracy is above chance + 2 points by a one-sided exact binomial test,
with Holm's correction over every test of the dataset. Chance is the mean of 1 / options, or the share of the commonest
letter where that is more: a skew of the letters is told once, by the cue `letter`, whose own chance is 1 / options.
Pairs of one photo are not independent, so counts are divided by the design effect of the source groups (Rao and Scott
1992, Biometrics 48).
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from synth.audit.cues import CUES, TOGETHER, Asked, Cue, Floats
from synth.diagnosis.statistics import holm, wilson
from synth.types import LETTERS, QA

FOLDS = 5
MIN_PAIRS = 40
"""With fewer pairs a cross-validated accuracy says nothing."""
SLACK = 0.02
"""How far above chance an accuracy may lie before it counts."""
ALPHA = 0.05
_RIDGE = 2.0
_STEPS = 25
Indices: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Shortcut:
    """What one blind solver gets on the pairs of one task and skill."""

    task: str
    skill: str
    cue: str
    about: str
    n: int
    groups: int
    right: int
    accuracy: float
    low: float
    high: float
    """Wilson 95 % interval, at the effective number of pairs."""
    chance: float
    p: float
    """One-sided, of an accuracy as high as this at chance + 2 points."""
    p_holm: float
    least: float
    """Smallest accuracy that would have been called a leak on so many pairs; a weaker one could not be seen."""
    example: str
    """The pair that the solver was surest of among those it got right."""

    @property
    def leaks(self) -> bool:
        """Whether the accuracy cannot be chance."""
        return self.p_holm < ALPHA


@dataclass(frozen=True, kw_only=True)
class Untested:
    """Pairs that no solver was tried on."""

    task: str
    skill: str
    n: int
    reason: str


@dataclass(frozen=True, kw_only=True)
class Shortcuts:
    """Every test of a dataset."""

    tests: tuple[Shortcut, ...]
    untested: tuple[Untested, ...]

    @property
    def leaks(self) -> tuple[Shortcut, ...]:
        """The cues that give answers away, the strongest first."""
        return tuple(sorted((t for t in self.tests if t.leaks), key=lambda t: t.chance - t.accuracy))


def find_shortcuts(pairs: Sequence[Asked]) -> Shortcuts:
    """Try every cue on every task and skill of a dataset."""
    tests: list[Shortcut] = []
    untested: list[Untested] = []
    for task, skill in sorted({(pair.task, pair.skill) for pair in pairs}):
        mine = [pair for pair in pairs if (pair.task, pair.skill) == (task, skill)]
        groups = len({pair.group for pair in mine})
        if len(mine) < MIN_PAIRS or groups < FOLDS:
            reason = f"{len(mine)} pairs of {groups} source groups (at least {MIN_PAIRS} of {FOLDS})"
            untested.append(Untested(task=task, skill=skill, n=len(mine), reason=reason))
        else:
            tests += _tests(mine)
    adjusted = holm([test.p for test in tests])
    done = (replace(test, p_holm=p, least=_least(test, len(tests))) for test, p in zip(tests, adjusted, strict=True))
    return Shortcuts(tests=tuple(done), untested=tuple(untested))


def blind_accuracy(pairs: Sequence[QA]) -> float | None:
    """Share of the pairs that the words alone give away, folds split by image; None for fewer than MIN_PAIRS."""
    if len(pairs) < MIN_PAIRS:
        return None
    asked = [
        Asked(
            qa_id=qa.qa_id,
            task=qa.task,
            skill=str(qa.skill),
            group=qa.image_id,
            question=qa.question,
            choices=qa.choices,
            options=qa.provenance.options,
            answer=LETTERS.index(qa.answer),
        )
        for qa in pairs
    ]
    scores = _counted(asked, fold_of_each(asked), CUES[0])
    right = scores.argmax(axis=1) == np.array([pair.answer for pair in asked])
    return round(float(right.mean()), 4)


# --------------------------------------------------------------------------------------------------------- the tests


def _tests(pairs: Sequence[Asked]) -> Iterator[Shortcut]:
    """One test a cue that these pairs have."""
    folds = fold_of_each(pairs)
    every: list[Floats] = []
    for cue in CUES:
        if pairs[0].skill in cue.is_the_question:
            continue
        if cue.words is not None:
            yield _judged(pairs, cue.name, cue.about, _counted(pairs, folds, cue))
            continue
        columns = cue.columns(pairs) if cue.columns is not None else None
        if columns is not None:
            every.append(columns)
            yield _judged(pairs, cue.name, cue.about, weigh(pairs, folds, columns))
    if len(every) > 1:
        columns = np.concatenate(every, axis=2)
        yield _judged(pairs, TOGETHER, "all numbers of the other cues at once", weigh(pairs, folds, columns))


def _judged(pairs: Sequence[Asked], cue: str, about: str, scores: Floats) -> Shortcut:
    """The test of one solver from its scores, (pairs, options), -inf where there is no option."""
    from scipy.special import betainc

    answers = np.array([pair.answer for pair in pairs])
    right = scores.argmax(axis=1) == answers
    n, k = len(pairs), int(right.sum())
    chance = float(np.mean([1 / len(pair.options) for pair in pairs]))
    if cue != "letter":
        chance = max(chance, max(Counter(answers.tolist()).values()) / n)
    worth = n / _design_effect(right, [pair.group for pair in pairs])
    share = k / n
    # The binomial tail as an incomplete beta function, which takes the fractions that a design effect makes of counts.
    tail = betainc(share * worth, (1 - share) * worth + 1, min(1.0, chance + SLACK)) if k else 1.0
    low, high = wilson(round(share * worth), max(1, round(worth)))
    two = np.sort(scores, axis=1)[:, -2:]
    sure = np.where(right, two[:, 1] - two[:, 0], -np.inf)
    best = pairs[int(sure.argmax())]
    return Shortcut(
        task=best.task,
        skill=best.skill,
        cue=cue,
        about=about,
        n=n,
        groups=len({pair.group for pair in pairs}),
        right=k,
        accuracy=share,
        low=low,
        high=high,
        chance=chance,
        p=float(tail),
        p_holm=1.0,
        least=worth,
        example=f"{best.qa_id}: {best.question} {best.choices[best.answer]}",
    )


def _least(test: Shortcut, family: int) -> float:
    """Smallest accuracy that the strictest of Holm's steps calls a leak; `test.least` still holds the effective n."""
    from scipy.special import betainc

    low, high = test.chance, 1.0
    for _ in range(20):
        middle = (low + high) / 2
        tail = betainc(middle * test.least, (1 - middle) * test.least + 1, min(1.0, test.chance + SLACK))
        low, high = (low, middle) if tail * family < ALPHA else (middle, high)
    return high


def _design_effect(right: npt.NDArray[np.bool_], groups: Sequence[str]) -> float:
    """Variance of the accuracy over groups as a multiple of independent pairs' variance; at least 1."""
    share = float(right.mean())
    names = {name: k for k, name in enumerate(dict.fromkeys(groups))}
    if not 0 < share < 1 or len(names) < 2:
        return 1.0
    member = np.array([names[name] for name in groups])
    sums = np.bincount(member, weights=right - share)
    between = float((sums**2).sum()) * len(names) / (len(names) - 1)
    return max(1.0, between / (len(right) * share * (1 - share)))


def fold_of_each(pairs: Sequence[Asked]) -> Indices:
    """Fold of each pair: whole groups, in the order of a hash, go round."""
    groups = [pair.group for pair in pairs]
    ordered = sorted(set(groups), key=lambda name: hashlib.blake2b(name.encode(), digest_size=8).digest())
    place = {name: k % FOLDS for k, name in enumerate(ordered)}
    return np.array([place[name] for name in groups], dtype=np.int64)


# ------------------------------------------------------------------------------------------------------- the solvers


def _counted(pairs: Sequence[Asked], folds: Indices, cue: Cue) -> Floats:
    """Naive Bayes: the sum of the log odds of an option's words, learnt on the other folds."""
    if cue.words is None:
        raise ValueError(f"{cue.name} has no words")
    words = [[cue.words(pair, i) for i in range(len(pair.options))] for pair in pairs]
    right: list[Counter[str]] = [Counter() for _ in range(FOLDS)]
    wrong: list[Counter[str]] = [Counter() for _ in range(FOLDS)]
    for pair, fold, options in zip(pairs, folds, words, strict=True):
        for i, found in enumerate(options):
            (right if i == pair.answer else wrong)[fold].update(found)
    total_right, total_wrong = (sum(counts, Counter[str]()) for counts in (right, wrong))
    scores = np.full((len(pairs), max(len(pair.options) for pair in pairs)), -np.inf)
    for row, fold, options in zip(scores, folds, words, strict=True):
        for i, found in enumerate(options):
            row[i] = sum(
                math.log((total_right[name] - right[fold][name] + 1) / (total_wrong[name] - wrong[fold][name] + 1))
                for name in found
            )
    return scores


def weigh(pairs: Sequence[Asked], folds: Indices, columns: Floats) -> Floats:
    """Conditional logit (McFadden 1974) with a ridge: weights learnt on the other folds, scores (pairs, options)."""
    there = np.arange(columns.shape[1]) < np.array([len(pair.options) for pair in pairs])[:, None]
    answers = np.array([pair.answer for pair in pairs])
    mean = (columns * there[..., None]).sum(axis=1, keepdims=True) / there.sum(axis=1)[:, None, None]
    centred = np.where(there[..., None], columns - mean, 0.0)  # only differences between options count
    scores = np.full(columns.shape[:2], -np.inf)
    for fold in range(FOLDS):
        train, test = folds != fold, folds == fold
        weights = _fit(centred[train], there[train], answers[train])
        scores[test] = np.where(there[test], centred[test] @ weights, -np.inf)
    return scores


def _fit(centred: Floats, there: npt.NDArray[np.bool_], answers: Indices) -> Floats:
    """Weights by Newton steps with a fixed upper bound of the Hessian (Böhning 1992, Ann. Inst. Stat. Math. 44)."""
    flat = centred.reshape(-1, centred.shape[2])
    bound = 0.5 * flat.T @ flat + _RIDGE * np.eye(flat.shape[1])
    told = centred[np.arange(len(answers)), answers].sum(axis=0)
    weights = np.zeros(flat.shape[1])
    for _ in range(_STEPS):
        scores = np.where(there, centred @ weights, -np.inf)
        odds = np.exp(scores - scores.max(axis=1, keepdims=True))
        odds /= odds.sum(axis=1, keepdims=True)
        step = np.linalg.solve(bound, told - odds.ravel() @ flat - _RIDGE * weights)
        weights += step
        if float(np.abs(step).max()) < 1e-3:
            break
    return weights
