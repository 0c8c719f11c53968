"""What a training did: `train_record.json`, written last."""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import ValidationError

from finetune.adapters import Tower
from finetune.checkpoints import DONE
from finetune.controls import ControlKind
from finetune.mix import Replayed
from finetune.preflight import Preflight
from finetune.settings import Method
from synth.config import Config, first_mistake
from synth.errors import RunError

PACKAGES = ("torch", "transformers", "trl", "peft", "datasets", "accelerate")


class DevResult(Config):
    """How the dev set was answered."""

    questions: int
    source_groups: int
    accuracy: tuple[tuple[int, float], ...]
    """(step, share of right letters)."""
    best_step: int | None
    """Whose weights were kept; None: no step was looked at, the last weights were kept."""
    stopped_early: bool


class TrainRecord(Config):
    """The record of one finished training."""

    method: Method = "sft"
    model: str
    dataset: str
    out: str
    identity: str
    """Digest of settings, data and base model."""
    adapter: str | None = None
    """The adapter that training went on from."""
    control: ControlKind | None = None
    certificate: str
    """The guard's verdict on the dataset."""
    rows: int
    rows_by_skill: dict[str, int]
    replay: Replayed | None = None
    dev: DevResult | None = None
    steps: int
    resumed_at: int
    """Step of the checkpoint that the last part of the run began from; 0: not resumed."""
    seconds: float
    """Of the training loop, in the last part of the run."""
    cpu_seconds: float
    tokens: int
    """Tokens trained on, as last logged."""
    losses: tuple[tuple[int, float], ...]
    """(step, mean loss since the last entry)."""
    margins: tuple[tuple[int, float], ...] = ()
    """DPO: (step, mean of beta x the gain in log-probability of the chosen answer over that of the rejected one)."""
    rewards: tuple[tuple[int, float], ...] = ()
    """GRPO: (step, mean weighted reward)."""
    zero_variance: float | None = None
    """GRPO: share of groups whose replies all earned the same, over all steps; such groups teach nothing."""
    modules: int
    """Layers with an adapter."""
    adapted: dict[Tower, int]
    """The same by tower."""
    trainable_parameters: int
    bf16: bool
    device: str
    preflight: Preflight
    adapter_effect: float
    """Largest change of a next-token log-probability by the adapter on a few rows; 0: an adapter that does nothing."""
    reload_difference: float
    """Largest difference of those log-probabilities between the trained model and the saved folder loaded anew."""
    versions: dict[str, str]


def read_record(out: Path) -> TrainRecord:
    """The record of a finished training. Raises RunError when the folder has none."""
    path = out / DONE
    try:
        return TrainRecord.model_validate(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise RunError("this training is not finished", where=str(path), fix="run it again: it goes on") from None
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise RunError("not a JSON file", where=str(path)) from None
    except ValidationError as error:
        raise RunError(
            f"not a training's record: {first_mistake(error)}", where=str(path), fix="train again into another folder"
        ) from None
