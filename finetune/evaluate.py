"""A model on a benchmark: outcomes of the type that diagnosis reads, from one forward pass an item."""

from __future__ import annotations

import json
import logging
from dataclasses import asdict
from pathlib import Path
from typing import Literal

from pydantic import Field

from finetune.checkpoints import folder_digest
from finetune.loading import Device, load_model
from finetune.score import Question, Score, iterate
from synth.config import Config, digest, dump
from synth.dataset.prompt import item_prompt
from synth.diagnosis.reading import write_outcomes
from synth.errors import BenchmarkError
from synth.files import write_text
from synth.types import BenchmarkData, Item, Outcome, Progress

logger = logging.getLogger(__name__)


class EvaluateOptions(Config):
    """How to evaluate."""

    batch_size: int = Field(16, ge=1)
    image_max_pixels: int | None = Field(None, ge=1)
    """Most pixels of an image. An adapter's folder carries its own budget; give the base model the same one."""
    threads: int | None = Field(None, ge=1)
    device: Device = "auto"
    wording: Literal["rows", "benchmark"] = "rows"
    """rows: question and options as in training rows; benchmark: the prompt as the benchmark publishes it."""


def evaluate(
    model_path: str,
    adapter: Path | None,
    benchmark: BenchmarkData,
    out: Path,
    options: EvaluateOptions | None = None,
    progress: Progress | None = None,
) -> list[Outcome]:
    """Ask every item and write `out` (outcomes.jsonl); returns the outcomes in the benchmark's order.

    Finished batches go to a journal beside `out`, so a killed evaluation goes on where it stopped; the journal of
    another model, benchmark or setting is thrown away. Raises BackendError for a model that cannot be loaded,
    BenchmarkError for items that cannot be asked.
    """
    options = options or EvaluateOptions()
    _check(benchmark)
    name = model_path if adapter is None else f"{model_path}+{adapter}"
    identity = digest(
        folder_digest(Path(model_path)) or model_path,
        folder_digest(adapter) if adapter is not None else None,
        [benchmark.name, benchmark.revision, len(benchmark.items)],
        {key: value for key, value in dump(options).items() if key not in ("threads", "batch_size")},
    )
    journal = out.with_name(f".{out.name}.part")
    scores = _resume(journal, identity)
    todo = [item for item in benchmark.items if item.item_id not in scores]
    if todo:
        loaded = load_model(model_path, adapter, image_max_pixels=options.image_max_pixels, device=options.device)
        questions = [_question(item, options) for item in todo]
        with journal.open("a", encoding="utf-8") as lines:
            for _, batch in iterate(loaded, questions, batch_size=options.batch_size, n_threads=options.threads):
                lines.writelines(_line(score) for score in batch)
                lines.flush()
                scores.update((score.item_id, score) for score in batch)
                if progress is not None:
                    progress(len(scores), len(benchmark.items))
    outcomes = [_outcome(item, scores[item.item_id], name) for item in benchmark.items]
    write_outcomes(out, outcomes)
    journal.unlink()
    return outcomes


def _check(benchmark: BenchmarkData) -> None:
    if not benchmark.items:
        raise BenchmarkError("no items", where=benchmark.name)
    known: set[str] = set()
    for item in benchmark.items:
        if item.item_id in known:
            raise BenchmarkError("two items have this id", where=f"{benchmark.name} {item.item_id}")
        if len(item.choices) < 2:
            raise BenchmarkError(f"{len(item.choices)} options: not a choice", where=f"{benchmark.name} {item.item_id}")
        known.add(item.item_id)


def _resume(journal: Path, identity: str) -> dict[str, Score]:
    """Scores of an interrupted evaluation; leaves a journal that begins with `identity` and holds whole lines only."""
    journal.parent.mkdir(parents=True, exist_ok=True)
    lines = journal.read_text(encoding="utf-8").splitlines() if journal.is_file() else []
    scores: dict[str, Score] = {}
    for line in lines[1:] if lines[:1] == [identity] else ():
        try:
            score = Score(**json.loads(line))
        except json.JSONDecodeError:
            break  # the line that was being written when the process died
        scores[score.item_id] = score
    if scores:
        logger.info("going on after %d scored items", len(scores))
    write_text(journal, identity + "\n" + "".join(map(_line, scores.values())))
    return scores


def _line(score: Score) -> str:
    return json.dumps(asdict(score), ensure_ascii=False) + "\n"


def _question(item: Item, options: EvaluateOptions) -> Question:
    text = item_prompt(item.question, item.choices) if options.wording == "rows" else item.prompt
    return Question(item_id=item.item_id, text=text, images=item.images, n_options=len(item.choices))


def _outcome(item: Item, score: Score, model: str) -> Outcome:
    return Outcome(
        item_id=item.item_id,
        category=item.category,
        skill=item.skill,
        model=model,
        text=score.letter,
        letter=score.letter,
        reason="unscored" if item.answer is None else None,
        gold=item.answer,
        correct=None if item.answer is None else score.letter == item.answer,
        n_options=len(item.choices),
        n_images=len(item.images),
        group=item.group,
        tags=item.tags,
        probabilities=score.probabilities,
    )
