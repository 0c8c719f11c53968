"""POPE (Li et al. 2023): is there such an object in the picture? Three ways of choosing the absent ones.

Read from a parquet copy (`question`, `answer`, `image`, `category`), or from the authors' `coco_pope_<category>.json`
(one object a line: `question_id`, `image`, `text`, `label`) with COCO's val2014 pictures in the folder `pictures`.
"""

from __future__ import annotations

import re

from synth.benchmarks._choices import YES_NO, letter_of
from synth.benchmarks._harvest import Harvest
from synth.benchmarks._tables import Row, TableOptions, open_table
from synth.contracts import Benchmark, BenchmarkData
from synth.dataset.prompt import item_prompt
from synth.errors import BenchmarkError
from synth.types import Item, PluginOptions, Progress, Skill, narrow

N_ITEMS = 9000
CATEGORIES = ("random", "popular", "adversarial")
_PATTERNS = ("**/test-*.parquet", "**/*.parquet", "**/coco_pope_*.json", "**/coco_pope_*.jsonl")
_FILE = re.compile(r"coco_pope_(\w+)")


class Options(TableOptions):
    """Where the copy is."""

    repo: str = "lmms-lab/POPE"
    pictures: str = ""
    """Folder of COCO's val2014 pictures, where the table only names them."""


def load(options: PluginOptions, progress: Progress | None) -> BenchmarkData:
    """Every item with its picture. Raises BenchmarkError."""
    chosen = narrow(options, Options)
    table = open_table(chosen, "pope", _PATTERNS, chosen.pictures)
    harvest = Harvest("pope", str(table.root))
    for row in table.each(progress):
        category, question = _category(row), row.need("question", "text")
        item = Item(
            item_id=f"{category}_{row.need('question_id')}",
            category=category,
            skill=Skill.EXISTENCE,
            question=question,
            choices=YES_NO,
            answer=letter_of(row.get("answer", "label"), YES_NO, row.where),
            prompt=item_prompt(question, YES_NO),
            images=table.pictures.of(row, "image"),
        )
        harvest.items.append(item)
    return harvest.data(table.digest(), {"items": (len(harvest.items), N_ITEMS)}, chosen.allow_partial)


def _category(row: Row) -> str:
    named = _FILE.fullmatch(row.file.stem)
    if "category" in row.cells or named is None:
        return row.among("category", CATEGORIES)
    if named[1] not in CATEGORIES:
        raise BenchmarkError(f"the category {named[1]!r} is new", where=str(row.file))
    return named[1]


BENCHMARK = Benchmark(
    name="pope",
    version=1,
    options=Options,
    licence="MIT (the pictures keep the terms of COCO)",
    skills=dict.fromkeys(CATEGORIES, Skill.EXISTENCE),
    human={},
    n_options=dict.fromkeys(CATEGORIES, 2),
    choices=dict.fromkeys(CATEGORIES, YES_NO),
    load=load,
)
