"""Does the answer depend on the region that matters? Visual sensitivity, with controls of equal area.

The region of the question is taken away step by step (blur), and the next-token distribution is compared with that of
the whole picture: KL(p || p') over the full vocabulary, over the options and "other", Jensen-Shannon, and the change of
the right letter's log-probability. A blur disturbs a model anywhere; so the same blur is laid on irrelevant places of
the same shape and area, and only what exceeds that is sensitivity. Where the marks can be drawn anew, exchanging their
letters flips the right answer and nothing else: does the model follow?

An item is right or wrong, sensitive or not: right and insensitive is a guess or a prior, wrong and insensitive is
blind, wrong and sensitive looks but misreads. Items whose region nobody knows are blurred as a whole and never pooled.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from pydantic import Field, TypeAdapter

from finetune import journal, perturb
from finetune.conditions import lettered, relabelled
from finetune.evaluate import journal_of, outcome_of, question_of, settings_of
from finetune.grounding import Effect, GroundingCell, Seen, cells_of, row_of
from finetune.loading import last_logprobs, threads
from finetune.respondents import Answer, EvaluateOptions, LocalModel
from finetune.score import Question, Score, batch_of, option_spellings, read
from finetune.selective import Selective, selective
from synth.config import Config, digest, dump
from synth.contracts import BenchmarkData
from synth.diagnosis.reading import write_outcomes
from synth.errors import BenchmarkError, ImageError
from synth.files import write_json, write_text
from synth.geometry import generator
from synth.progress import Silent
from synth.types import LETTERS, Item, Reporter

SMOOTHING = 1e-6
"""Added to each option's probability, and to that of all other tokens, before they are compared."""
Logs: TypeAlias = npt.NDArray[np.float64]
_Pictures: TypeAlias = tuple[bytes, ...]


class SensitivityOptions(Config):
    """What is taken away, and against what it is held."""

    ladder: tuple[float, ...] = Field((2.0, 5.0, 10.0, 20.0), min_length=1)
    """Blurs in pixels of a picture whose shorter side is 512, weakest first; the last one is the test."""
    controls: int = Field(4, ge=1)
    """Irrelevant places an item."""
    per_skill: int | None = Field(200, ge=1)
    """Items of each skill at most, evenly spread; an item costs a dozen forward passes."""
    alpha: float = Field(0.05, gt=0, lt=1)
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class Sensitivity:
    """sensitivity.json"""

    model: str
    benchmark: str
    options: SensitivityOptions
    cells: tuple[GroundingCell, ...]
    confidence: Selective
    """Does sensitivity, or the probability of the answer, tell right answers from wrong ones?"""
    left_out: Mapping[str, int]
    """Items not looked at, by reason."""
    seen: Sequence[Seen] = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class _Look:
    """One item under all changes, as the journal keeps it."""

    item_id: str
    region: perturb.RegionKind
    base: Answer
    blurs: dict[str, Effect]
    fill: Effect
    controls: tuple[Effect, ...]
    swap: Effect | None


_LOOK = TypeAdapter(_Look)


def sensitivity(
    model: LocalModel,
    data: BenchmarkData,
    out: Path,
    options: SensitivityOptions | None = None,
    evaluate: EvaluateOptions | None = None,
    reporter: Reporter | None = None,
) -> Sensitivity:
    """Measure, and write sensitivity.json, sensitivity.jsonl (one line an item) and outcomes.jsonl into `out`.

    A killed run goes on where it stopped. Raises BenchmarkError where no item has a picture or one cannot be decoded,
    BackendError as `load_model` does.
    """
    options, evaluate, reporter = options or SensitivityOptions(), evaluate or EvaluateOptions(), reporter or Silent()
    items, left_out = _chosen(data, options.per_skill)
    part = journal_of(out / "sensitivity.jsonl")
    identity = digest(model.identity, [data.name, data.revision, len(data.items)], dump(options), settings_of(evaluate))
    looks = {look.item_id: look for look in map(_LOOK.validate_python, journal.resume(part, identity))}
    with journal.append(part) as keep, threads(evaluate.threads):
        for item in items:
            if item.item_id not in looks:
                looks[item.item_id] = _look(model, item, data.clean_images, options, evaluate)
                keep([_LOOK.dump_python(looks[item.item_id], mode="json")])
            reporter.stage("looking", len(looks), len(items))
    seen = [_seen(looks[item.item_id], item, model.name, evaluate) for item in items]
    depends = {it.outcome.item_id: it.strongest.kl for it in seen}
    result = Sensitivity(
        model=model.name,
        benchmark=data.name,
        options=options,
        cells=cells_of(seen, options.alpha, options.seed),
        confidence=selective([it.outcome for it in seen], {"sensitivity": depends}, options.seed),
        left_out=left_out,
        seen=seen,
    )
    write_outcomes(out / "outcomes.jsonl", [it.outcome for it in seen])
    write_text(out / "sensitivity.jsonl", "".join(journal.line(row_of(it)) for it in seen))
    write_json(
        out / "sensitivity.json",
        {
            "model": result.model,
            "benchmark": result.benchmark,
            "options": dump(options),
            "cells": [asdict(cell) for cell in result.cells],
            "confidence": asdict(result.confidence),
            "left_out": dict(left_out),
        },
    )
    part.unlink()
    return result


def divergences(p: Logs, q: Logs, base: Score, changed: Score, gold: str | None) -> Effect:
    """From `base` to `changed`: `p` and `q` are their log-probabilities over the vocabulary, float64."""
    first, second = _bins(base), _bins(changed)
    middle = (first + second) / 2
    return Effect(
        # Rounding of the float32 model may leave a divergence of nothing below zero.
        kl=max(0.0, float((np.exp(p) * (p - q)).sum())),
        kl_options=_kl(first, second),
        js=(_kl(first, middle) + _kl(second, middle)) / 2,
        delta_gold=None if gold is None else float(np.log(_share(changed, gold)) - np.log(_share(base, gold))),
        letter=changed.letter,
    )


def _share(score: Score, letter: str) -> float:
    return max(score.probabilities[letter], float(np.finfo(np.float64).tiny))


def _bins(score: Score) -> Logs:
    shares = np.array([*score.probabilities.values(), max(0.0, 1 - score.mass)]) + SMOOTHING
    return np.asarray(shares / shares.sum())


def _kl(p: Logs, q: Logs) -> float:
    return max(0.0, float((p * np.log(p / q)).sum()))


# ---------------------------------------------------------------------------------------------------------- one item


def _chosen(data: BenchmarkData, most: int | None) -> tuple[list[Item], dict[str, int]]:
    """Items with pictures, evenly spread over each skill, in the benchmark's order; and how many are left out, why."""
    left_out: Counter[str] = Counter()
    skills: dict[str, list[Item]] = defaultdict(list)
    for item in data.items:
        if not item.images:
            left_out["no picture"] += 1
        elif not 2 <= len(item.choices) <= len(LETTERS):
            left_out["no choice between options"] += 1
        else:
            skills[item.skill].append(item)
    chosen: set[str] = set()
    for members in skills.values():
        n = len(members) if most is None else min(most, len(members))
        chosen |= {members[i * len(members) // n].item_id for i in range(n)}
        if n < len(members):
            left_out["beyond per_skill"] += len(members) - n
    if not chosen:
        raise BenchmarkError("no item to look at", where=data.name, fix="sensitivity needs items with pictures")
    return [item for item in data.items if item.item_id in chosen], dict(left_out)


def _look(
    model: LocalModel,
    item: Item,
    clean: Mapping[str, bytes],
    options: SensitivityOptions,
    evaluate: EvaluateOptions,
) -> _Look:
    try:
        subject = perturb.subject_of(item, clean)
    except ImageError as error:
        raise BenchmarkError(f"an image cannot be used: {error.message}", where=f"item {item.item_id}") from None
    strongest = options.ladder[-1]
    blurs = {f"{sigma:g}": perturb.blurred(subject, subject.patches, sigma) for sigma in options.ladder}
    rng = generator(options.seed, "elsewhere", item.item_id)
    places = [] if subject.kind == "whole_image" else [perturb.elsewhere(subject, rng) for _ in range(options.controls)]
    # All controls of an item or none: the test exchanges the region with each of them.
    free = [place for place in places if place is not None]
    controls = [perturb.blurred(subject, place, strongest) for place in free] if len(free) == options.controls else []
    swapped = relabelled(item, clean, 1) if len(item.choices) == 2 and lettered(item) else None
    shown: list[_Pictures] = [item.images, perturb.filled(subject, subject.patches), *blurs.values(), *controls]
    shown += [swapped.images] if swapped is not None else []
    scores, logs = _distributions(model, question_of(item, evaluate), shown, evaluate.batch_size)
    effects = [
        divergences(logs[0], row, scores[0], score, item.answer)
        for score, row in zip(scores[1:], logs[1:], strict=True)
    ]
    first = 1 + len(blurs)
    return _Look(
        item_id=item.item_id,
        region=subject.kind,
        base=Answer(item_id=item.item_id, text=scores[0].letter, probabilities=scores[0].probabilities),
        blurs=dict(zip(blurs, effects[1:first], strict=True)),
        fill=effects[0],
        controls=tuple(effects[first : first + len(controls)]),
        swap=effects[-1] if swapped is not None else None,
    )


def _distributions(
    model: LocalModel, question: Question, shown: Sequence[_Pictures], batch_size: int
) -> tuple[list[Score], list[Logs]]:
    """The question with each of the pictures: scores, and log-probabilities over the vocabulary."""
    ids = option_spellings(model.loaded.processor, question.n_options)
    scores: list[Score] = []
    logs: list[Logs] = []
    for start in range(0, len(shown), batch_size):
        part = [
            Question(item_id=question.item_id, text=question.text, images=images, n_options=question.n_options)
            for images in shown[start : start + batch_size]
        ]
        for row in last_logprobs(model.loaded, batch_of(model.loaded, part)).cpu():
            scores.append(read(question, row, ids))
            logs.append(row.double().numpy())
    return scores, logs


def _seen(look: _Look, item: Item, model: str, evaluate: EvaluateOptions) -> Seen:
    return Seen(
        outcome=outcome_of(item, look.base, model, question_of(item, evaluate).text),
        region=look.region,
        blurs=look.blurs,
        fill=look.fill,
        controls=look.controls,
        swap=look.swap,
    )
