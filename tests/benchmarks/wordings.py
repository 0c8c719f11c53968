"""Asks the rooms benchmark's depth items in other words: does a model lack the skill, or mistake the question?

    OMP_NUM_THREADS=1 python tests/benchmarks/wordings.py MODEL [--adapter FOLDER] [--items 600]

The benchmark's own words, then each wording that the training pairs use (`synth.tasks.relative_depth`); the pictures,
the marks and the answers are the same. Beside accuracy: how often the reply names the mark further left, which says
nothing about depth and should be half.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from finetune.evaluate import evaluate
from finetune.respondents import EvaluateOptions
from synth.benchmarks.rooms import Options, load
from synth.contracts import BenchmarkData
from synth.dataset.prompt import item_prompt
from synth.tasks.relative_depth import WORDINGS
from synth.types import Item, Outcome, Skill


def wordings(data: BenchmarkData, count: int) -> Iterator[tuple[str, list[Item]]]:
    """(question, the first `count` depth items asked so)."""
    items = [item for item in data.items if item.skill is Skill.RELATIVE_DEPTH][:count]
    yield items[0].question, items
    for wording in WORDINGS:
        choices = tuple(wording.choice.format(label) for label in "AB")
        prompt = item_prompt(wording.question, choices)
        yield (
            wording.question,
            [replace(item, question=wording.question, choices=choices, prompt=prompt) for item in items],
        )


def follows_left(item: Item, outcome: Outcome) -> bool:
    """Whether the reply names the mark further left."""
    x = {mark.label: mark.x for mark in item.marks[0]}
    return outcome.letter == min(x, key=x.__getitem__)


def main() -> None:
    """Print one line a wording."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--adapter", type=Path)
    parser.add_argument("--items", type=int, default=600)
    args = parser.parse_args()
    data = load(Options(n_rooms=200, first_seed=1_000_000, n_depth=600, n_left_right=300, n_semantic=250), None)
    print("accuracy, % | names the mark further left, % | question")
    for question, items in wordings(data, args.items):
        with tempfile.TemporaryDirectory() as folder:
            asked = replace(data, items=tuple(items))
            options = EvaluateOptions(threads=1)
            outcomes = evaluate(args.model, args.adapter, asked, Path(folder) / "outcomes.jsonl", options)
        right = sum(bool(outcome.correct) for outcome in outcomes)
        left = sum(follows_left(item, outcome) for item, outcome in zip(items, outcomes, strict=True))
        print(f"{100 * right / len(items):11.1f} | {100 * left / len(items):31.1f} | {question}", flush=True)


if __name__ == "__main__":
    main()
