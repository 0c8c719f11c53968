"""A model on a benchmark: outcomes of the type that diagnosis reads, by one forward pass an item or by a read reply."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path

from finetune import journal
from finetune.respondents import Answer, EvaluateOptions, LocalModel, Respondent
from finetune.score import Question
from synth.config import digest, dump
from synth.contracts import BenchmarkData
from synth.dataset.prompt import item_prompt
from synth.diagnosis.reading import score_reply, write_outcomes
from synth.errors import BenchmarkError
from synth.types import Item, JsonValue, Outcome, Progress, Reply

__all__ = ["EvaluateOptions", "evaluate", "evaluate_with", "journal_of", "outcome_of", "question_of", "settings_of"]

logger = logging.getLogger(__name__)


def evaluate(
    model_path: str,
    adapter: Path | None,
    benchmark: BenchmarkData,
    out: Path,
    options: EvaluateOptions | None = None,
    progress: Progress | None = None,
) -> list[Outcome]:
    """`evaluate_with` for a model on this machine. Raises BackendError for one that cannot be loaded, too."""
    options = options or EvaluateOptions()
    outcomes = evaluate_with(LocalModel(model_path, adapter, options), benchmark, out, options, progress)
    journal_of(out).unlink()
    return outcomes


def evaluate_with(
    respondent: Respondent,
    benchmark: BenchmarkData,
    out: Path,
    options: EvaluateOptions,
    progress: Progress | None = None,
) -> list[Outcome]:
    """Ask every item and write `out` (outcomes.jsonl); returns the outcomes in the benchmark's order.

    Answers go to a journal beside `out` as they come, so a killed evaluation goes on where it stopped and asks only
    what is missing; the journal of another model, benchmark or setting is thrown away. The journal stays: whoever calls
    knows when it is no longer needed. Raises BenchmarkError for items that cannot be asked, BackendError for a model
    that cannot be asked.
    """
    _check(benchmark)
    identity = digest(
        respondent.identity,
        [benchmark.name, benchmark.revision, len(benchmark.items)],
        settings_of(options),
    )
    path = journal_of(out)
    found = {answer.item_id: answer for answer in (_answer(row) for row in journal.resume(path, identity))}
    if found:
        logger.info("going on after %d answered items", len(found))
    questions = {item.item_id: question_of(item, options) for item in benchmark.items}
    todo = [question for item_id, question in questions.items() if item_id not in found]
    with journal.append(path) as keep:
        for answers in respondent.answers(todo, options) if todo else ():
            keep([asdict(answer) for answer in answers])
            found.update((answer.item_id, answer) for answer in answers)
            if progress is not None:
                progress(len(found), len(benchmark.items))
    outcomes = [
        outcome_of(item, found[item.item_id], respondent.name, questions[item.item_id].text) for item in benchmark.items
    ]
    write_outcomes(out, outcomes)
    return outcomes


def journal_of(out: Path) -> Path:
    """Where the answers of an unfinished evaluation are kept."""
    return out.with_name(f".{out.name}.part")


def settings_of(options: EvaluateOptions) -> dict[str, JsonValue]:
    """What of the options changes an answer."""
    return {key: value for key, value in dump(options).items() if key not in ("threads", "batch_size")}


def question_of(item: Item, options: EvaluateOptions) -> Question:
    """An item as the model is asked it; with the default wording, in the words of training rows."""
    wording = item_prompt(item.question, item.choices) if options.wording == "rows" else item.prompt
    text = options.template.replace("{prompt}", wording)
    return Question(item_id=item.item_id, text=text, images=item.images, n_options=len(item.choices))


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


def _answer(row: Mapping[str, object]) -> Answer:
    return Answer(**row)  # type: ignore[arg-type]  # a line that `asdict` wrote under this run's identity


def outcome_of(item: Item, answer: Answer, model: str, prompt: str) -> Outcome:
    """A letter of one forward pass stands as it is; a reply is read as one in anybody's result file would be."""
    by_choice = bool(answer.probabilities)
    reply = Reply(
        item_id=item.item_id,
        category=item.category,
        model=model,
        text=answer.text,
        gold=item.answer,
        released=answer.text if by_choice else None,
        choices=item.choices,
        n_images=len(item.images),
        prompt=prompt,
        truncated=answer.truncated,
        group=item.group,
        tags={**item.tags, "harness_error": answer.error} if answer.error else item.tags,
    )
    return replace(score_reply(reply, None, item, by_choice), probabilities=answer.probabilities)
