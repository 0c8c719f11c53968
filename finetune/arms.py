"""The trainings of a round: the real one, others on the same rows (seeds, settings, a second stage), and controls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from pydantic import Field

from finetune.controls import ControlKind
from finetune.evaluate import EvaluateOptions, evaluate
from finetune.respondents import LocalModel
from finetune.sensitivity import SensitivityOptions, sensitivity
from finetune.train import TrainConfig, TrainSettings, train
from synth.config import Config, PluginChoice, dump, resolve, validate
from synth.engines.local import run as run_local
from synth.plugins import BENCHMARKS
from synth.types import JsonValue

Plain: TypeAlias = bool | int | float | str | None
Changes: TypeAlias = dict[str, Plain | dict[str, Plain]]
"""Settings of `train` that differ."""


class ControlConfig(Config):
    """A control arm: trained like the real one on rows that must not help."""

    kind: ControlKind = "shuffled"
    seed: int | None = Field(default=None, ge=0)
    """Of the training and of what the control draws; None: the run's own."""


class ArmConfig(Config):
    """Another training on the real rows: another seed, or other settings (an ablation)."""

    seed: int | None = Field(default=None, ge=0)
    """None: the run's own."""
    continues: bool = False
    """A second stage: goes on from the real training's adapter, as GRPO and DPO do."""
    train: Changes = Field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Measures:
    """What is measured after a training, on which items."""

    benchmark: PluginChoice
    evaluate: EvaluateOptions
    sensitivity: SensitivityOptions | None


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One training with its evaluation; picklable."""

    train: TrainConfig
    measures: Measures
    folder: Path
    """Of its evaluation."""

    @property
    def finished(self) -> bool:
        """Whether nothing is left to do; sensitivity.json is written last."""
        last = "outcomes.jsonl" if self.measures.sensitivity is None else "sensitivity/sensitivity.json"
        return (self.folder / last).exists()


@dataclass(frozen=True, kw_only=True)
class Trainings:
    """What all trainings of a round share, and what is asked for beside the real one."""

    folder: Path
    """Of the round."""
    model: str
    benchmark: str
    """Its name: the dataset's certificate must be for it."""
    seed: int
    train: TrainSettings
    changes: Changes
    """Of this round, for every training."""
    arms: Mapping[str, ArmConfig]
    controls: Mapping[str, ControlConfig]
    measures: Measures

    def all(self) -> list[Arm]:
        """The real training first, then further ones, then the controls."""
        found = [self._arm(self.folder, {}, None, None)]
        for name, arm in self.arms.items():
            stage = {"adapter": str(self.folder / "train")} if arm.continues else {}
            found.append(self._arm(self.folder / "arms" / name, {**arm.train, **stage}, arm.seed, None))
        for name, control in self.controls.items():
            found.append(self._arm(self.folder / "controls" / name, {}, control.seed, control.kind))
        return found

    def _arm(self, base: Path, changes: Mapping[str, JsonValue], seed: int | None, control: ControlKind | None) -> Arm:
        settings: dict[str, JsonValue] = {
            **dump(self.train),
            **self.changes,
            **changes,
            "model": self.model,
            "dataset": str(self.folder / "dataset"),
            "benchmark": self.benchmark,
            "out": str(base / "train"),
            "control": control,
            "seed": self.seed if seed is None else seed,
        }
        measures = self.measures
        # An arm shows the size or the spread of a gain; whether the model looks is asked of the real one.
        if base != self.folder:
            measures = replace(measures, sensitivity=None)
        return Arm(
            train=validate(settings, TrainConfig, f"{base.parent.name}.{base.name}.train"),
            measures=measures,
            folder=base / "after",
        )


def run_arms(arms: list[Arm], workers: int, progress: Callable[[int, int], None]) -> None:
    """Train and measure what is not finished, `workers` at a time; those that go on from another one come last."""
    done = sum(arm.finished for arm in arms)
    progress(done, len(arms))
    for later in (False, True):
        todo = [arm for arm in arms if not arm.finished and (arm.train.adapter is not None) == later]
        for _ in run_local(_run, todo, workers):
            done += 1
            progress(done, len(arms))


def _run(arm: Arm) -> None:
    """Train one arm and measure it on the same items; runs in a worker process."""
    train(arm.train)
    measures = arm.measures
    record, options = resolve(measures.benchmark, BENCHMARKS, "benchmark")
    data = record.load(options, None)
    outcomes = arm.folder / "outcomes.jsonl"
    if not outcomes.exists():
        evaluate(arm.train.model, arm.train.out, data, outcomes, measures.evaluate, None)
    if measures.sensitivity is not None:
        model = LocalModel(arm.train.model, arm.train.out, measures.evaluate)
        sensitivity(model, data, arm.folder / "sensitivity", measures.sensitivity, measures.evaluate)
