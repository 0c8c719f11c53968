"""Reads the folder of a `s2p loop` run for its report. Unknown keys are passed over; a missing file is `None`."""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard, TypeVar

from pydantic import BaseModel, ValidationError

from synth.config import first_mistake
from synth.errors import RunError
from synth.report.cards import Example
from synth.report.certificate import Certificate
from synth.report.records import (
    Answer,
    Comparison,
    ExampleLine,
    LooksFile,
    LoopFile,
    Manifest,
    PlanFile,
    PowerFile,
    ProfileFile,
    TrainRecord,
    TrainRun,
)


@dataclass(frozen=True, kw_only=True)
class Round:
    """Everything that one round left behind."""

    name: str
    folder: Path
    profile: ProfileFile
    comparison: Comparison | None
    """None: the plan found nothing to teach, so nothing was trained."""
    plan: PlanFile | None
    manifest: Manifest | None
    certificate: Certificate | None
    train: TrainRecord | None
    arms: Mapping[str, TrainRecord]
    """Of other trainings on the same data."""
    controls: Mapping[str, TrainRecord]
    power: PowerFile | None
    looks: LooksFile | None
    before: Mapping[str, Answer] | None
    """Outcomes by item id."""
    after: Mapping[str, Answer] | None
    notes: tuple[str, ...]
    examples: tuple[ExampleLine, ...] | None


@dataclass(frozen=True, kw_only=True)
class Run:
    """A whole run."""

    name: str
    rounds: tuple[Round, ...]
    unfinished: tuple[str, ...]
    """Rounds that have not come to their end."""
    loop: LoopFile | None
    notes: tuple[str, ...]


RecordT = TypeVar("RecordT", bound=BaseModel)


def read_run(run: Path) -> Run:
    """Read a run folder with its `round-NN` folders, or one round's folder by itself.

    Raises RunError when no round is finished, or when a file is damaged.
    """
    folders = sorted(path for path in run.glob("round-*") if path.is_dir()) or [run]
    done = [folder for folder in folders if _finished(folder)]
    if not done:
        missing = [name for name in _ESSENTIAL if not (folders[0] / name).is_file()]
        raise RunError(
            f"no finished round: {' and '.join(missing)} missing in {folders[0].name}",
            where=str(run),
            fix="give the folder that `s2p loop` wrote, and let at least one round finish",
        )
    return Run(
        name=run.resolve().name,
        rounds=tuple(_read_round(folder) for folder in done),
        unfinished=tuple(folder.name for folder in folders if folder not in done),
        loop=_optional(run / "loop.json", LoopFile),
        notes=_notes(run / "notes.json") if folders != [run] else (),
    )


_ESSENTIAL = ("comparison.json", "before/profile.json")


def _finished(folder: Path) -> bool:
    if all((folder / name).is_file() for name in _ESSENTIAL):
        return True
    plan = _optional(folder / "plan.json", PlanFile) if (folder / "before/profile.json").is_file() else None
    return plan is not None and not any(quota.role == "target" for quota in plan.quotas)


def _read_round(folder: Path) -> Round:
    examples = _json(folder / "examples.json")
    where = folder / "examples.json"
    return Round(
        name=folder.name,
        folder=folder,
        profile=_checked(_json(folder / "before/profile.json"), ProfileFile, folder / "before/profile.json"),
        comparison=_optional(folder / "comparison.json", Comparison),
        plan=_optional(folder / "plan.json", PlanFile),
        manifest=_optional(folder / "dataset/manifest.json", Manifest),
        certificate=_optional(folder / "dataset/certificate.json", Certificate),
        train=_training(folder),
        arms=_trainings(folder / "arms"),
        controls=_trainings(folder / "controls"),
        power=_optional(folder / "power.json", PowerFile),
        looks=_optional(folder / "sensitivity.json", LooksFile),
        before=_outcomes(folder / "before/outcomes.jsonl"),
        after=_outcomes(folder / "after/outcomes.jsonl"),
        notes=_notes(folder / "notes.json"),
        examples=None if examples is None else tuple(_checked(e, ExampleLine, where) for e in _list(examples, where)),
    )


def _trainings(folder: Path) -> dict[str, TrainRecord]:
    found = {path.name: _training(path) for path in sorted(folder.glob("*"))}
    return {name: record for name, record in found.items() if record is not None}


def _training(folder: Path) -> TrainRecord | None:
    record = _optional(folder / "train/train_record.json", TrainRecord)
    run = _optional(folder / "train/train_run.json", TrainRun)
    return record if record is None or run is None else record.model_copy(update={"settings": run.settings})


def _json(path: Path) -> object:
    """The file's value, or None where there is no file."""
    if not path.is_file():
        return None
    try:
        value: object = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise RunError(f"not valid JSON ({error})", where=str(path), fix="run that stage again") from None
    return value


def _checked(value: object, kind: type[RecordT], where: Path) -> RecordT:
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        raise RunError(first_mistake(error), where=str(where), fix="run that stage again") from None


def _optional(path: Path, kind: type[RecordT]) -> RecordT | None:
    value = _json(path)
    return None if value is None else _checked(value, kind, path)


def _list(value: object, where: Path) -> list[object]:
    if not isinstance(value, list):
        raise RunError(f"expected a list, found {type(value).__name__}", where=str(where))
    return value


def _notes(path: Path) -> tuple[str, ...]:
    value = _json(path)
    return () if value is None else tuple(str(line) for line in _list(value, path))


def _outcomes(path: Path) -> dict[str, Answer] | None:
    if not path.is_file():
        return None
    return {answer.item_id: answer for answer in _lines(path)}


def _lines(path: Path) -> Iterator[Answer]:
    with path.open(encoding="utf-8") as file:
        for index, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                yield Answer.model_validate_json(line)
            except ValidationError as error:
                message = error.errors()[0]["msg"]
                raise RunError(f"line {index}: {message}", where=str(path), fix="run that evaluation again") from None


def steps_of(losses: Sequence[object]) -> list[tuple[float, float]]:
    """(step, loss) from (step, loss) pairs, records with `step` and `loss`, or plain numbers, which count from 1."""
    found = []
    for index, item in enumerate(losses, start=1):
        step: object = index
        if isinstance(item, Mapping):
            step, item = item.get("step", index), item.get("loss")
        elif isinstance(item, Sequence) and not isinstance(item, str) and item:
            step, item = (item[0] if len(item) > 1 else index), item[-1]
        if _is_number(step) and _is_number(item):
            found.append((float(step), float(item)))
    return found


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def to_example(line: ExampleLine) -> Example:
    """An entry of examples.json as a question with two replies."""
    encoded = line.images_b64 or ((line.image_b64,) if line.image_b64 else ())
    return Example(
        images=tuple(_decoded(text) for text in encoded),
        question=line.question,
        choices=line.choices,
        answer=line.answer,
        skill=line.skill or "other",
        replies={"before": line.before, "after": line.after},
        note=", ".join(f"{key.replace('_', ' ')}: {value.replace('_', ' ')}" for key, value in line.tags.items()),
    )


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        return b""  # the card says that the picture cannot be shown
