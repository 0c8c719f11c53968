"""MMStar (Chen et al. 2024): 1,500 questions that language models cannot answer without the picture.

Read from a copy of Lin-Chen/MMStar: parquet, where the options stand in the question ("Options: A: x, B: y"), or TSV
with the columns A, B, C, D. Rows whose options cannot be told apart are counted as skipped. The tag `axis` holds the
finer of its two groupings.
"""

from __future__ import annotations

from collections import Counter

from synth.benchmarks._choices import glued_options, letter_of
from synth.benchmarks._harvest import Harvest
from synth.benchmarks._tables import Row, TableOptions, open_table
from synth.contracts import Benchmark, BenchmarkData
from synth.dataset.prompt import item_prompt
from synth.types import Item, PluginOptions, Progress, Skill, narrow

N_PER_CATEGORY = 250
CATEGORIES = (
    "coarse perception",
    "fine-grained perception",
    "instance reasoning",
    "logical reasoning",
    "science & technology",
    "math",
)
_PATTERNS = ("**/*.parquet", "**/MMStar*.tsv")


class Options(TableOptions):
    """Where the copy is."""

    repo: str = "Lin-Chen/MMStar"


def load(options: PluginOptions, progress: Progress | None) -> BenchmarkData:
    """Every item with its picture. Raises BenchmarkError."""
    chosen = narrow(options, Options)
    table = open_table(chosen, "mmstar", _PATTERNS)
    harvest = Harvest("mmstar", str(table.root))
    for row in table.each(progress):
        images = table.pictures.of(row, "image")
        harvest.take(_item(row, images), row.need("index"), images)
    rows = Counter(row.get("category") for row in table.rows)
    counts = {f"rows of {category}": (rows[category], N_PER_CATEGORY) for category in CATEGORIES}
    return harvest.data(table.digest(), counts, chosen.allow_partial)


def _item(row: Row, images: tuple[bytes, ...]) -> Item | str:
    """The item, or why there is none."""
    category, text, choices = row.among("category", CATEGORIES), row.need("question"), row.lettered()
    question, prompt = text, item_prompt(text, choices)
    if not choices:
        found = glued_options(text, row.get("answer"))
        if found is None:
            return "options cannot be told apart"
        (question, choices), prompt = found, text
    return Item(
        item_id=row.need("index"),
        category=category,
        skill=Skill.OTHER,
        question=question,
        choices=choices,
        answer=letter_of(row.get("answer"), choices, row.where),
        prompt=prompt,
        images=images,
        tags={"axis": row.get("l2_category")} if row.get("l2_category") else {},
    )


BENCHMARK = Benchmark(
    name="mmstar",
    version=1,
    options=Options,
    licence="unknown: check the card",
    skills=dict.fromkeys(CATEGORIES, Skill.OTHER),
    human={},
    n_options={},
    choices={},
    load=load,
)
