"""What is known of a model's errors beside their number: can they be mended with pictures, and does the model look?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from synth.diagnosis.blindness import Errors, Kind, SensitivityFile
from synth.diagnosis.statistics import wilson
from synth.findings import Contrast, Profile
from synth.types import Skill


@dataclass(frozen=True)
class Teachable:
    """What a specialist says of a skill's errors."""

    right: int
    n: int
    chance: float

    @property
    def share(self) -> float:
        """Of the errors that it judged, those on which it is right."""
        return self.right / self.n

    def __str__(self) -> str:
        low, high = wilson(self.right, self.n)
        return f"{self.right} of {self.n} errors [{100 * low:.0f}, {100 * high:.0f} %]"


@dataclass(frozen=True)
class Evidence:
    """Of the errors of each skill; a skill that is not there is one of which nothing is known."""

    teachable: Mapping[Skill, Teachable]
    errors: Mapping[Skill, Errors]
    kinds: Mapping[Skill, Kind]
    """What most of `errors` are."""
    contrasted: bool
    """Some specialist was set beside the model."""
    looked: bool
    """There is a sensitivity file."""
    fold: int | None
    """The fold that the sensitivity file leaves out."""
    model: str
    """The sensitivity file's; "" without one."""


def evidence_of(
    profile: Profile, contrasts: Sequence[Contrast], sensitivity: SensitivityFile | None, least: tuple[int, int]
) -> Evidence:
    """`least`: errors that a specialist, and that a sensitivity file, must have judged before they count.

    Raises ConfigError for a sensitivity file of another benchmark.
    """
    errors: Mapping[Skill, Errors] = {}
    if sensitivity is not None:
        sensitivity.check(profile)
        errors = sensitivity.errors()
    return Evidence(
        teachable=_teachable(profile, contrasts, least[0]),
        errors=errors,
        kinds={skill: it.kind(least[1]) for skill, it in errors.items()},
        contrasted=bool(contrasts),
        looked=sensitivity is not None,
        fold=sensitivity.fold if sensitivity is not None else None,
        model=sensitivity.model if sensitivity is not None else "",
    )


def _teachable(profile: Profile, contrasts: Sequence[Contrast], least: int) -> dict[Skill, Teachable]:
    """Skill → its errors that a specialist judged, where these are enough; several categories are added up.

    Of several specialists on a category, the one that mends most errors counts.
    """
    best: dict[str, Contrast] = {}
    for contrast in sorted(contrasts, key=lambda it: (it.quadrants.get("trainable", 0), it.specialist)):
        best[contrast.category] = contrast
    found: dict[Skill, list[Contrast]] = {}
    for category in profile.categories:
        if category.name in best:
            found.setdefault(category.skill, []).append(best[category.name])
    pooled = {}
    for skill, members in found.items():
        right = sum(it.quadrants.get("trainable", 0) for it in members)
        n = right + sum(it.quadrants.get("ambiguous", 0) for it in members)
        if n >= least:
            decided = sum(it.decided for it in members)
            pooled[skill] = Teachable(right, n, sum(it.chance * it.decided for it in members) / decided)
    return pooled
