"""The files of a `s2p loop` run as typed records, as far as its report prints them.

Every number may be absent: a report must be able to say "not recorded" about a run of any age, and must not invent a
zero.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, field_validator


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


class DevFacts(Record):
    """How the questions held out of a training were answered on the way."""

    questions: int | None = None
    accuracy: tuple[tuple[float, float], ...] = ()
    """(step, share of right letters)."""
    best_step: int | None = None
    """Whose weights were kept; None: the last ones."""


class TrainRecord(Record):
    """train/train_record.json, with the settings of train_run.json beside it."""

    method: str = "sft"
    control: str | None = None
    """What was done to the rows of a control arm."""
    seconds: float | None = None
    steps: int | None = None
    rows: int | None = None
    losses: tuple[object, ...] = ()
    rewards: tuple[tuple[float, float], ...] = ()
    """GRPO: (step, mean reward)."""
    dev: DevFacts | None = None
    modules: int | None = None
    """Layers with an adapter."""
    adapted: dict[str, int] | None = None
    """The same by tower."""
    trainable_parameters: int | None = None
    device: str = ""
    versions: dict[str, str] = Field(default_factory=dict)
    settings: dict[str, object] | None = None
    """None: not on record."""


class TrainRun(Record):
    """train/train_run.json"""

    settings: dict[str, object] = Field(default_factory=dict)


class SkillPower(Record):
    """What a comparison can see of one skill, said before training; shares."""

    n: int | None = None
    discordance: float | None = None
    """Assumed share of answers that change either way; None: as in the file."""
    detectable: float | None = None
    """Smallest change that is found with the power asked for; None: not even the largest."""
    power_at: dict[str, float] = Field(default_factory=dict)
    """Change -> probability that it is found."""


class PowerFile(Record):
    """power.json"""

    alpha: float | None = None
    power: float | None = None
    discordance: float | None = None
    comparisons: int | None = None
    """Skills that the level is divided by."""
    skills: dict[str, SkillPower] = Field(default_factory=dict)


class SkillLooks(Record):
    """Visual sensitivity of one skill before and after: KL divergences in nats, shares 0..1."""

    region: str = ""
    n: int | None = None
    net_before: float | None = None
    """KL at the region minus KL at places that do not matter."""
    net_after: float | None = None
    net_delta: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    p_holm: float | None = None
    superiority_before: float | None = None
    """How often the region counts for more than a place that does not matter."""
    superiority_after: float | None = None
    swap_n: int | None = None
    swap_before: float | None = None
    """Share of answers that follow when the marks exchange their letters."""
    swap_after: float | None = None
    swap_both_before: float | None = None
    """Share right before and after the exchange."""
    swap_both_after: float | None = None
    swap_p: float | None = None
    """Of the change of right both times."""
    swap_p_holm: float | None = None
    follows: str = ""
    """Verdict on that change."""
    sensitive_before: float | None = None
    sensitive_after: float | None = None
    """Share of questions whose answer depends on the place by more than 95 of 100 other places would make it."""
    sensitive_p: float | None = None
    quadrants_before: dict[str, int] | None = None
    """grounded_right, blind_right, misreads, blind_wrong."""
    quadrants_after: dict[str, int] | None = None
    verdict: str = ""


class LooksFile(Record):
    """A round's sensitivity.json"""

    skills: dict[str, SkillLooks] = Field(default_factory=dict)


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
