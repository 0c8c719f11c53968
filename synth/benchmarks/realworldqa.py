"""RealWorldQA (xAI 2024): 765 questions about photographs taken from cars and elsewhere.

Read from a parquet copy (options on lines of the question) or VLMEvalKit's TSV (columns A, B, C, D). Only multiple
choice is kept; rows with a free answer are counted as skipped, their pictures stay with the benchmark.
"""

from __future__ import annotations

from synth.benchmarks._choices import glued_options, is_letter, letter_of
from synth.benchmarks._harvest import Harvest
from synth.benchmarks._tables import Row, TableOptions, open_table
from synth.contracts import Benchmark, BenchmarkData
from synth.dataset.prompt import item_prompt
from synth.types import Item, PluginOptions, Progress, Skill, narrow

N_ROWS = 765
CATEGORY = "real_world"
_PATTERNS = ("**/*.parquet", "**/RealWorldQA*.tsv")


class Options(TableOptions):
    """Where the copy is."""

    repo: str = "xai-org/RealworldQA"


def load(options: PluginOptions, progress: Progress | None) -> BenchmarkData:
    """Every multiple-choice item with its picture. Raises BenchmarkError."""
    chosen = narrow(options, Options)
    table = open_table(chosen, "realworldqa", _PATTERNS)
    harvest = Harvest("realworldqa", str(table.root))
    for row in table.each(progress):
        images = table.pictures.of(row, "image")
        harvest.take(_item(row, images), _item_id(row), images)
    return harvest.data(table.digest(), {"rows": (len(table.rows), N_ROWS)}, chosen.allow_partial)


def _item_id(row: Row) -> str:
    return row.get("index") or str(row.number)


def _item(row: Row, images: tuple[bytes, ...]) -> Item | str:
    """The item, or why there is none."""
    text, answer, choices = row.need("question"), row.need("answer"), row.lettered()
    question, prompt = text, item_prompt(text, choices)
    if not choices:
        if not is_letter(answer):
            return "free answer"
        glued = glued_options(text, answer)
        if glued is None:
            return "options cannot be told apart"
        (question, choices), prompt = glued, text
    return Item(
        item_id=_item_id(row),
        category=CATEGORY,
        skill=Skill.OTHER,
        question=question,
        choices=choices,
        answer=letter_of(answer, choices, row.where),
        prompt=prompt,
        images=images,
    )


BENCHMARK = Benchmark(
    name="realworldqa",
    version=1,
    options=Options,
    licence="CC-BY-ND-4.0",
    skills={CATEGORY: Skill.OTHER},
    human={},
    n_options={},
    choices={},
    load=load,
)
