"""The guard's certificate as a typed record, as far as a report prints it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from synth.report.records import Record


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
