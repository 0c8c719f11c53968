"""The nouns of a diagnosis: what is true of one run, of two, of many, and what follows for the training data.

Shares are 0..1 throughout. An item without a letter counts as wrong wherever nothing else is said.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from synth.types import Skill

Verdict: TypeAlias = Literal["improved", "no evidence", "regressed"]
Quadrant: TypeAlias = Literal["trainable", "ambiguous", "shortcut", "solved"]


@dataclass(frozen=True, kw_only=True)
class CategoryProfile:
    """How a model does on one category (or skill)."""

    name: str
    skill: Skill
    n: int
    """Scored items."""
    accuracy: float
    """Over all scored items; an item without a letter counts as wrong."""
    low: float
    high: float
    """Wilson 95 % interval of `accuracy`."""
    chance: float
    human: float | None
    balanced: float | None
    """Mean recall over the gold letters."""
    answered: float
    """Accuracy over the items with a letter."""
    n_answered: int
    n_unscored: int
    majority_share: float
    """Share of the commonest letter among the answered."""
    majority_letter: str | None
    reasons: Mapping[str, int]
    """Items without a letter, by reason."""
    flags: tuple[str, ...]
    letters: Mapping[str, int] = field(default_factory=dict)
    """The model's letters."""
    gold: Mapping[str, int] = field(default_factory=dict)
    """The key's letters."""
    constant: float = 0.0
    """Accuracy of the best constant letter."""
    p_chance: float = 1.0
    """Exact one-sided p that guessing does as well (items with their own number of options)."""
    errors: Mapping[str, int] = field(default_factory=dict)
    """Wrong items by kind: refusal, unparsed, truncated, letter_bias, suspect_label, perception."""
    upper: float = 1.0
    """Accuracy if every item without a letter were right; `accuracy` is the lower bound."""
    conflict_letter: float | None = None
    conflict_text: float | None = None
    """Accuracy if replies whose letter and option text disagree are read by the letter, or by the text; None where
    there are none."""
    judged: float | None = None
    """Accuracy with the judge's letters where the rules abstain; None without a judge."""
    harness: float | None = None
    """Accuracy by the harness's own verdicts, where the file gives one for every scored item."""
    needed: Mapping[str, int] = field(default_factory=dict)
    """Items that a paired change of so many points needs ("+5": 626), at this category's discordance."""
    n_groups: int = 0
    """Questions of a circular set (every option in every place); 0 where it is none."""
    group_accuracy: float | None = None
    """Share of these with all rotations right, as circular benchmarks score."""
    group_chance: float | None = None
    """The same for guessing: (1/n)^n for n options in n rotations."""

    @property
    def top(self) -> float:
        """What there is to reach: human accuracy, or 1 where it is unknown."""
        return 1.0 if self.human is None else self.human

    @property
    def told_flags(self) -> tuple[str, ...]:
        """The flags to print: `one_letter` is part of `collapsed`, and both would say it twice."""
        return tuple(flag for flag in self.flags if not (flag == "one_letter" and "collapsed" in self.flags))


@dataclass(frozen=True, kw_only=True)
class Profile:
    """What a model can and cannot perceive, by category and by skill."""

    benchmark: str
    model: str
    macro: float
    micro: float
    chance: float
    """Macro chance."""
    human: float | None
    categories: tuple[CategoryProfile, ...]
    skills: tuple[CategoryProfile, ...]
    warnings: tuple[str, ...] = ()
    key_hash: str = ""
    prompt_hash: str = ""
    """Identity of all prompts together; "" where the files hold none."""
    routing: tuple[str, ...] = ()
    """Categories whose accuracy, from chance (0) to people or all right (1), is below the routing threshold: send those
    elsewhere."""
    fold: int | None = None
    """The held-out fifth that this profile leaves out, where it does."""


@dataclass(frozen=True, kw_only=True)
class Quota:
    """How many pairs of one skill to make, and why."""

    task: str
    skill: Skill
    n: int
    why: str
    role: Literal["target", "replay"] = "target"
    """replay: keeps a skill that the model already has."""
    difficulty: Mapping[str, float] = field(default_factory=dict)
    """Band (easy, medium, hard: thirds of 0..1) -> share of the pairs; empty: as they come."""
    contrast: float = 0.0
    """Share of the pairs that come as contrast pairs: two of one photo with the same words, two pictures and opposite
    answers (`synth.twins`)."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Quotas with reasons, and what is not served by any task."""

    quotas: tuple[Quota, ...]
    unserved: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """What the plan has not seen, which skills no specialist judged, what is for the prompt and not for pictures."""
    fold: int | None = None
    """The held-out fifth of the benchmark that the plan has not seen; None: it has seen all."""


# ------------------------------------------------------------------------------------------------------- two runs


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A set of items before and after."""

    n: int
    before: float
    after: float
    delta: float
    low: float
    high: float
    """95 % interval of `delta`: paired bootstrap by group."""
    gained: int
    """Items wrong before and right after."""
    lost: int
    p: float
    """Exact McNemar."""
    p_holm: float | None = None
    verdict: Verdict = "no evidence"
    before_low: float
    before_high: float
    after_low: float
    after_high: float
    """95 % Wilson intervals."""


@dataclass(frozen=True, kw_only=True)
class Flip:
    """One item whose answer changed between two runs."""

    item_id: str
    category: str
    kind: Literal["gained", "lost", "still wrong"]
    """still wrong: another wrong answer."""
    before: str | None
    after: str | None
    """Letters; None where there is none."""
    gold: str


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """Two runs of one benchmark: what changed, and where they must not be compared."""

    before: str
    after: str
    categories: Mapping[str, Cell]
    """One family of tests, Holm-corrected together; only what may be compared."""
    overall: Cell | None
    macro_before: float
    macro_after: float
    macro_low: float
    macro_high: float
    """95 % interval of the change of the macro mean."""
    flips: tuple[Flip, ...]
    refused: Mapping[str, str]
    """Category -> why its two results are not compared (key changed, prompts differ, other items …)."""
    only_before: int
    only_after: int
    """Items that one run lacks; left out."""
    needed: Mapping[str, int]
    """Category -> items that a change of +5 points needs at the discordance seen here."""
    gate_passed: bool
    gate_reasons: tuple[str, ...]
    warnings: tuple[str, ...] = ()


# ------------------------------------------------------------------------------------------------------ many runs


@dataclass(frozen=True, kw_only=True)
class Suspect:
    """An item whose key most models contradict, all with the same letter."""

    item_id: str
    category: str
    gold: str
    said: str
    """The letter that they agree on."""
    agree: int
    answered: int


@dataclass(frozen=True, kw_only=True)
class Matrix:
    """Models by categories, both in an order that puts like beside like."""

    models: tuple[str, ...]
    categories: tuple[str, ...]
    accuracy: tuple[tuple[float | None, ...], ...]
    """A row a model; None where it has no scored item."""
    above_chance: tuple[tuple[float | None, ...], ...]
    """(accuracy - chance) / (1 - chance)."""
    collapsed: tuple[tuple[bool, ...], ...]
    macro: tuple[float, ...]
    n: tuple[int, ...]
    """Items a category."""
    chance: tuple[float, ...]
    human: tuple[float | None, ...]
    clusters: tuple[int, ...]
    """Cluster of each category (0, 1, …): categories that models fail alike."""
    missed_by_all: tuple[str, ...]
    """Categories in which no model is above chance (Holm over the matrix)."""
    missed_items: Mapping[str, tuple[str, ...]]
    """Category -> items that no model answers rightly."""
    suspects: tuple[Suspect, ...]
    warnings: tuple[str, ...] = ()
    """Cells that were left out and why, unequal items or prompts, and that agreement is not truth."""


# ------------------------------------------------------------------------------------------- specialist contrast


@dataclass(frozen=True, kw_only=True)
class ContrastItem:
    """One item, seen by the model and by a specialist on the same pixels."""

    item_id: str
    category: str
    model_correct: bool
    specialist: str | None
    """The specialist's letter; None where it cannot say."""
    reason: str
    """Why there is none (marks_not_found, inside_margin, …); "" where there is one."""
    specialist_correct: bool | None


@dataclass(frozen=True, kw_only=True)
class Contrast:
    """A category's quadrants: is the signal in the pixels where the model fails?"""

    category: str
    specialist: str
    n: int
    localised: int
    """Items whose marks are known or were found."""
    decided: int
    """Items on which the specialist spoke."""
    specialist_accuracy: float
    specialist_low: float
    specialist_high: float
    """Over the decided items."""
    model_accuracy: float
    """Over the same items."""
    chance: float
    quadrants: Mapping[Quadrant, int]
    """trainable: specialist right, model wrong; solved: both right; shortcut: model right, specialist wrong;
    ambiguous: both wrong."""
    reasons: Mapping[str, int]
    items: tuple[ContrastItem, ...]
