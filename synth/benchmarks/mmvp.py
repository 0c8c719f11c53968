"""MMVP (Tong et al. 2024): 150 pairs of pictures that CLIP takes for one and people do not.

Read from `Questions.csv` beside the folder `MMVP Images` (1.jpg … 300.jpg), or from a parquet copy with the same
columns and the pictures. A pair is one group: the benchmark's own score counts a pair only where both answers are
right. The answers of two pairs stand the wrong way round in the published key (tsb0601/MMVP#14, #30): their items carry
the tag `suspect` and keep the published letter.
"""

from __future__ import annotations

from synth.benchmarks._choices import letter_of, split_options
from synth.benchmarks._harvest import Harvest
from synth.benchmarks._tables import Row, Table, TableOptions, open_table
from synth.contracts import Benchmark, BenchmarkData
from synth.dataset.prompt import item_prompt
from synth.errors import BenchmarkError
from synth.types import Item, PluginOptions, Progress, Skill, narrow

N_ITEMS = 300
CATEGORY = "clip_blind_pair"
SWAPPED = (99, 100, 279, 280)
"""Indices, from 1, of the pairs with a swapped key."""
_PATTERNS = ("**/Questions.csv", "**/*.parquet")


class Options(TableOptions):
    """Where the copy is."""

    repo: str = "MMVP/MMVP"


def load(options: PluginOptions, progress: Progress | None) -> BenchmarkData:
    """Every item with its picture. Raises BenchmarkError."""
    chosen = narrow(options, Options)
    table = open_table(chosen, "mmvp", _PATTERNS)
    harvest = Harvest("mmvp", str(table.root))
    harvest.items += [_item(row, table) for row in table.each(progress)]
    return harvest.data(table.digest(), {"items": (len(harvest.items), N_ITEMS)}, chosen.allow_partial)


def _item(row: Row, table: Table) -> Item:
    index, question = row.need("Index"), row.need("Question")
    found = split_options(row.need("Options"))
    if found is None or not index.isdecimal():
        raise BenchmarkError(f"index {index!r} with options {row.get('Options')!r}", where=row.where)
    number, choices = int(index), found[1]
    # The Hub's own viewer orders the pictures as text (1, 10, 100 …); only the file's name says whose it is.
    images = table.pictures.of(row, "image") or (table.pictures.file(f"MMVP Images/{number}.jpg", row.where),)
    return Item(
        item_id=index,
        category=CATEGORY,
        skill=Skill.OTHER,
        question=question,
        choices=choices,
        answer=letter_of(row.get("Correct Answer"), choices, row.where),
        prompt=item_prompt(question, choices),
        images=images,
        group=f"pair-{(number + 1) // 2:03d}",
        tags={"suspect": "swapped key"} if number in SWAPPED else {},
    )


BENCHMARK = Benchmark(
    name="mmvp",
    version=1,
    options=Options,
    licence="MIT",
    skills={CATEGORY: Skill.OTHER},
    human={},
    n_options={CATEGORY: 2},
    choices={},
    load=load,
)
