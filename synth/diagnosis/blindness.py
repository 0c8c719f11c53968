"""Why a skill's wrong answers are wrong: the model does not look, or it looks and misreads.

`s2p sensitivity` takes the region of each question away and sees whether the answer's distribution moves by more than
irrelevant places move it. Wrong and unmoved is blind, wrong and moved is misread. Only cells of a known region count:
a whole picture that is blurred moves every model; and only those whose threshold comes from irrelevant places.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from synth.config import first_mistake
from synth.diagnosis.statistics import wilson
from synth.errors import ConfigError
from synth.findings import Profile
from synth.types import Skill

Kind = Literal["blind", "misread", "unclear"]
_FIX = "give the sensitivity.json that `s2p sensitivity` wrote"


class _Read(BaseModel):
    """A part of a file that has more keys than are needed here; of these, each has its type."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


class Quadrants(_Read):
    """Wrong items of a cell."""

    misreads: int = Field(ge=0)
    blind_wrong: int = Field(ge=0)


class Cell(_Read):
    """One skill, by one kind of region."""

    skill: Skill
    region: Literal["around_marks", "with_marks", "boxes", "whole_image"]
    calibrated: bool
    quadrants: Quadrants


class SensitivityFile(_Read):
    """What a plan needs of a sensitivity.json."""

    model: str
    benchmark: str
    cells: tuple[Cell, ...]
    fold: int | None = None
    """The fold whose items are left out; None: no word of it, so none may be."""

    def check(self, profile: Profile) -> None:
        """Raises ConfigError where it speaks of another benchmark than the profile, as far as both say.

        A model has one name as a folder and another one in somebody's result file, so that names which differ are told
        and not refused (`Evidence.model`).
        """
        if self.benchmark and profile.benchmark and self.benchmark != profile.benchmark:
            raise ConfigError(
                f"measured on the benchmark {self.benchmark!r}, the profile is of {profile.benchmark!r}",
                where="sensitivity",
                fix="run `s2p sensitivity` with the benchmark of the profile",
            )

    def errors(self) -> dict[Skill, Errors]:
        """Skill → its wrong answers; skills without a cell that counts are left out."""
        found: dict[Skill, Errors] = {}
        for cell in self.cells:
            if cell.calibrated and cell.region != "whole_image":
                old = found.get(cell.skill, Errors(0, 0))
                more = cell.quadrants
                found[cell.skill] = Errors(old.blind + more.blind_wrong, old.misread + more.misreads)
        return found


@dataclass(frozen=True)
class Errors:
    """Wrong answers of one skill."""

    blind: int
    """Insensitive to the region of the question."""
    misread: int
    """Sensitive to it."""

    @property
    def n(self) -> int:
        """All of them."""
        return self.blind + self.misread

    def kind(self, least: int) -> Kind:
        """What most errors are, by the lower bound of Wilson's 95 % interval; unclear with fewer than `least`."""
        if self.n >= least and wilson(self.blind, self.n)[0] > 0.5:
            return "blind"
        return "misread" if self.n >= least and wilson(self.misread, self.n)[0] > 0.5 else "unclear"

    def __str__(self) -> str:
        """The larger part of the errors, in words."""
        words = "blind" if self.blind >= self.misread else "misread"
        count = max(self.blind, self.misread)
        if not self.n:
            return "no wrong answer"
        low, high = wilson(count, self.n)
        return f"{count} of {self.n} wrong answers are {words} [{100 * low:.0f}, {100 * high:.0f} %]"


def load_sensitivity(path: Path) -> SensitivityFile:
    """Read a sensitivity.json. Raises ConfigError."""
    try:
        return SensitivityFile.model_validate_json(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"cannot be read: {error}", where=str(path), fix=_FIX) from None
    except ValidationError as error:
        raise ConfigError(first_mistake(error), where=str(path), fix=_FIX) from None
