"""The files of a `s2p loop` run as typed records, as far as its report prints them.

Every number may be absent: a report must be able to say "not recorded" about a run of any age, and must not invent a
zero.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator


class Record(BaseModel):
    """Base of what is read: frozen, and keys that the report does not print are passed over."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Cell(Record):
    """One skill before and after, on the same questions. Shares are 0..1; delta and its interval too."""

    n: int | None = None
    before: float | None = None
    after: float | None = None
    delta: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    p_holm: float | None = None
    verdict: str = ""
    before_low: float | None = None
    before_high: float | None = None
    after_low: float | None = None
    after_high: float | None = None
    gained: int | None = None
    """Questions wrong before and right after."""
    lost: int | None = None
    advantage: Cell | None = None
    """Of a control arm: from the arm to the model that was trained on the true data."""
    kept: str = ""
    """Of a skill that was not taught: kept, undecided, lost, nothing to keep."""


class Overall(Cell):
    """All questions together, and the unweighted mean over the skills."""

    macro_before: float | None = None
    macro_after: float | None = None
    macro_delta: float | None = None
    macro_low: float | None = None
    macro_high: float | None = None


class Gate(Record):
    """Whether the round may stand."""

    passed: bool | None = None
    reasons: tuple[str, ...] = ()


class Spread(Record):
    """Change of a taught skill over several trainings on the same data; shares."""

    n: int
    mean: float
    sd: float
    least: float
    most: float
    improved: int
    """Trainings after which it had improved."""


class Comparison(Record):
    """comparison.json"""

    per_skill: dict[str, Cell]
    targets: tuple[str, ...] | None = None
    """Skills that were taught; None where the file does not say."""
    overall: Overall | None = None
    retention: dict[str, Cell | bool | float | None] = Field(default_factory=dict)
    """Cells by skill, beside the plain values `margin` (largest loss that is allowed) and `passed`."""
    controls: dict[str, dict[str, Cell]] = Field(default_factory=dict)
    arms: dict[str, dict[str, Cell]] = Field(default_factory=dict)
    """Other trainings on the same data, by skill."""
    spread: dict[str, Spread] = Field(default_factory=dict)
    gate: Gate = Gate()
    strata: dict[str, dict[str, dict[str, Cell]]] = Field(default_factory=dict)
    held_out: dict[str, Cell] = Field(default_factory=dict)
    """By skill, on the fifth of the items that planning did not see."""
    warnings: tuple[str, ...] = ()


class Level(Record):
    """One skill or category of profile.json."""

    n: int | None = None
    accuracy: float | None = None
    chance: float | None = None
    human: float | None = None


class ProfileFile(Record):
    """profile.json"""

    macro: float | None = None
    micro: float | None = None
    chance: float | None = None
    human: float | None = None
    benchmark: str = ""
    model: str = ""
    categories: dict[str, Level] = Field(default_factory=dict)
    skills: dict[str, Level] = Field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    @field_validator("categories", "skills", mode="before")
    @classmethod
    def _by_name(cls, value: object) -> object:
        # Both shapes occur: a mapping by name, and a list of records that carry their name.
        if isinstance(value, list):
            return {str(item.get("name")): item for item in value if isinstance(item, dict)}
        return value


class QuotaLine(Record):
    """A quota of plan.json or manifest.json."""

    task: str
    skill: str
    n: int
    why: str = ""
    role: str = "target"
    made: int | None = None


class PlanFile(Record):
    """plan.json"""

    quotas: tuple[QuotaLine, ...] = ()
    unserved: tuple[str, ...] = ()


class DropLine(Record):
    """One reason of manifest.json's `drops`."""

    stage: str = ""
    task: str = ""
    reason: str
    count: int
    example: str = ""


class Images(Record):
    """Images of a generation run."""

    listed: int | None = None
    used: int | None = None
    dropped: int | None = None


class Pairs(Record):
    """Pairs of a generation run."""

    candidates: int | None = None
    kept: int | None = None
    by_skill: dict[str, int] = Field(default_factory=dict)
    by_split: dict[str, int] = Field(default_factory=dict)
    letters: dict[str, dict[str, int]] = Field(default_factory=dict)
    strata: dict[str, dict[str, int]] = Field(default_factory=dict)


class GuardFacts(Record):
    """manifest.json's `guard`, and what certificate.json says of the same."""

    verdict: str = ""
    planted: int | None = None
    found: int | None = None
    removed: dict[str, int] = Field(default_factory=dict)


class FileLine(Record):
    """One file of a dataset."""

    file: str
    rows: int | None = None
    bytes: int | None = None
    sha256: str = ""


class Manifest(Record):
    """dataset/manifest.json"""

    run: str = ""
    seconds: float | None = None
    code_version: str = ""
    config: dict[str, object] = Field(default_factory=dict)
    images: Images = Images()
    pairs: Pairs = Pairs()
    quotas: tuple[QuotaLine, ...] = ()
    drops: tuple[DropLine, ...] = ()
    perception: dict[str, object] = Field(default_factory=dict)
    guard: GuardFacts | None = None
    files: tuple[FileLine, ...] = ()


class Looked(Record):
    """What one stage did to sources, or to finished pictures."""

    n_checked: int = 0
    n_hits: int = 0
    n_review: int = 0
    n_skipped: int = 0


class GuardCheck(Record):
    """One stage of the certificate."""

    stage: str
    tool: str = ""
    ran_on: str = ""
    n_checked: int | None = None
    n_hits: int | None = None
    n_review: int | None = None
    n_skipped: int | None = None
    sources: Looked | None = None
    outputs: Looked | None = None
    """Image stages count sources and finished pictures apart; the four numbers above are then their sums."""
    status: str = ""

    @model_validator(mode="after")
    def _add_up(self) -> GuardCheck:
        parts = [part for part in (self.sources, self.outputs) if part is not None]
        if not parts or self.n_checked is not None:
            return self
        sums = {name: sum(getattr(part, name) for part in parts) for name in Looked.model_fields}
        return self.model_copy(update=sums)


class GuardedBenchmark(Record):
    """A benchmark that the guard protects."""

    name: str = ""
    revision: str = ""
    splits: tuple[str, ...] = ()
    expected_items: int | str | None = None
    read_items: int | str | None = None
    read_images: int | None = None
    unreadable: tuple[object, ...] = ()


class Planted(Record):
    """Known copies put in on purpose."""

    n: int | None = None
    found: int | None = None


class Calibration(Record):
    """How the guard's recall was measured."""

    planted: Planted = Planted()
    recall_by_transform: dict[str, float] | Literal["not_run"] = "not_run"
    negatives_n: int | None = None
    fp: int | None = None


class Certificate(Record):
    """dataset/certificate.json"""

    created: str = ""
    verdict: str = ""
    benchmarks: tuple[GuardedBenchmark, ...] = ()
    checks: tuple[GuardCheck, ...] = ()
    calibration: Calibration = Calibration()
    removed: dict[str, int] = Field(default_factory=dict)
    near_misses: tuple[dict[str, object], ...] = ()
    limits: tuple[str, ...] = ()


class TrainRecord(Record):
    """train/train_record.json"""

    seconds: float | None = None
    steps: int | None = None
    rows: int | None = None
    losses: tuple[object, ...] = ()
    modules: int | None = None
    """Layers with an adapter."""
    adapted: dict[str, int] | None = None
    """The same by tower."""
    trainable_parameters: int | None = None
    device: str = ""
    versions: dict[str, str] = Field(default_factory=dict)


class LoopFile(Record):
    """loop.json beside the rounds: the settings of the run."""

    config: dict[str, object] = Field(default_factory=dict)


class Answer(Record):
    """What the report needs of a line of outcomes.jsonl."""

    item_id: str
    skill: str = ""
    letter: str | None = None
    gold: str | None = None
    correct: bool | None = None


class ExampleLine(Record):
    """One entry of examples.json."""

    image_b64: str | None = None
    images_b64: tuple[str, ...] = ()
    question: str
    choices: tuple[str, ...] = ()
    answer: str | None = None
    before: str | None = None
    after: str | None = None
    skill: str = ""
    tags: dict[str, str] = Field(default_factory=dict)
