"""TRL's trainers, watched: what they log is checked, progress is told, and a dev set asked as in an evaluation."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from finetune.loading import VisionLanguageModel
from finetune.score import Question, score
from finetune.settings import TrainConfig
from synth.errors import DatasetError
from synth.types import Progress

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedModel, ProcessorMixin, Trainer, TrainerCallback, TrainerControl

logger = logging.getLogger(__name__)

ACCURACY = "eval_mcq_accuracy"
ZERO_VARIANCE = "frac_reward_zero_std"
"""TRL's name for the share of groups whose replies all earned the same: they teach nothing."""


@dataclass(frozen=True, kw_only=True)
class DevSet:
    """Questions of the dev set with their right letters."""

    questions: tuple[Question, ...]
    answers: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Watch:
    """What to look at, and whom to tell."""

    config: TrainConfig
    device: str
    dev: DevSet | None
    progress: Progress | None


def watched(kind: type[Trainer], watch: Watch) -> type[Trainer]:
    """A trainer class that does as `kind` does, and checks its loss, tells its progress and asks the dev set."""

    class Watched(kind):
        """The stock trainer, watched."""

        control: TrainerControl

        def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
            if "loss" in logs:
                check_step(self.state.global_step, logs["loss"], logs["grad_norm"], watch.config)
            super().log(logs, start_time)
            entry = self.state.log_history[-1]  # TRL adds its own metrics on the way there
            if ZERO_VARIANCE in entry:
                said = entry["step"], entry["reward"], 100 * entry[ZERO_VARIANCE]
                logger.info("step %d: reward %.3f, groups without variance %.0f%%", *said)
            if watch.progress is not None:
                watch.progress(self.state.global_step, self.state.max_steps)

        def evaluate(
            self,
            eval_dataset: Dataset | None = None,
            ignore_keys: list[str] | None = None,
            metric_key_prefix: str = "eval",
        ) -> dict[str, float]:
            """Share of the dev questions whose likeliest letter is right: the loss of a letter would say less."""
            if watch.dev is None:
                return {}
            model = self.accelerator.unwrap_model(self.model, keep_fp32_wrapper=True)
            training = model.training
            metrics = {ACCURACY: dev_accuracy(model.eval(), self.processing_class, watch)}
            model.train(training)
            self.log(metrics)
            self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
            return metrics

    return Watched


def last_look() -> TrainerCallback:
    """Asks the dev set at the last step, too, whatever the steps between two looks."""
    from transformers import TrainerCallback

    callback = TrainerCallback()
    # transformers calls with more names than these.
    callback.on_step_end = lambda args, state, control, **_: replace(
        control, should_evaluate=control.should_evaluate or state.global_step >= state.max_steps
    )
    return callback


def dev_accuracy(model: PreTrainedModel, processor: ProcessorMixin, watch: Watch) -> float:
    """Share of right letters over the dev set."""
    assert watch.dev is not None
    asked = VisionLanguageModel(name="dev", model=model, processor=processor, device=watch.device)
    scores = score(asked, watch.dev.questions, batch_size=watch.config.batch_size)
    right = sum(one.letter == answer for one, answer in zip(scores, watch.dev.answers, strict=True))
    return right / len(scores)


def dev_set(rows: Dataset) -> DevSet:
    """Rows as an evaluation asks them."""
    from datasets import Image, List

    encoded = rows.cast_column("images", List(Image(decode=False)))
    questions, answers = [], []
    for row in encoded:
        text = "".join(block["text"] or "" for message in row["prompt"] for block in message["content"])
        images = tuple(image["bytes"] for image in row["images"] or [])
        questions.append(Question(item_id=row["qa_id"], text=text, images=images, n_options=len(row["choices"])))
        answers.append(row["answer"])
    return DevSet(questions=tuple(questions), answers=tuple(answers))


def check_step(step: int, loss: float, grad_norm: float, config: TrainConfig) -> None:
    """Raises DatasetError when the logged loss or gradient norm is not finite, or exactly 0 where it must not be.

    GRPO's loss is 0 by construction on fresh replies, and its gradient is 0 where all groups are of one reward: that
    is counted (`zero_variance`) and no error.
    """
    where = f"step {step}"
    if not (math.isfinite(loss) and math.isfinite(grad_norm)):
        raise DatasetError(
            f"the loss is {loss}, the gradient norm {grad_norm}",
            where=where,
            fix=f"lower learning_rate (now {config.learning_rate:g}), or set precision: fp32",
        )
    if config.method != "grpo" and (loss == 0 or grad_norm == 0):
        raise DatasetError(
            f"the loss is {loss:g} and the gradient norm {grad_norm:g}: nothing is being trained",
            where=where,
            fix="no token carries a loss (look at max_length and the preflight's decoded rows), or the model already "
            "answers with certainty, or the adapted layers take no part in the answer (look at lora_scope)",
        )


def metric_history(history: Sequence[Mapping[str, float]], name: str) -> list[tuple[int, float]]:
    """(step, value) of every entry of a trainer's log that holds a metric."""
    return [(int(entry["step"]), float(entry[name])) for entry in history if name in entry]
