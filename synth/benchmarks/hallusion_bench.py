"""HallusionBench (Guan et al. 2024): yes/no questions about figures, and about the same figures edited.

Read from a parquet copy, from `HallusionBench.json` with its pictures (`filename`), or from VLMEvalKit's TSV. Questions
that come without a figure are counted as skipped. Items of one figure set are one group; the tag `visual_input` says
whether the figure is the original or an edited one.
"""

from __future__ import annotations

from synth.benchmarks._choices import YES_NO, letter_of
from synth.benchmarks._harvest import Harvest
from synth.benchmarks._tables import Row, Table, TableOptions, open_table
from synth.contracts import Benchmark, BenchmarkData
from synth.dataset.prompt import item_prompt
from synth.types import Item, PluginOptions, Progress, Skill, narrow

N_ITEMS = 951
"""Questions with a figure, of 1,129."""
SKILLS = {"VD": Skill.OTHER, "VS": Skill.OTHER}
_PATTERNS = ("**/*.parquet", "**/HallusionBench*.json", "**/HallusionBench*.tsv")
_VISUAL = {"1": "original", "2": "edited"}
_KEY = {"0": "no", "1": "yes"}


class Options(TableOptions):
    """Where the copy is."""

    repo: str = "lmms-lab/HallusionBench"
    pictures: str = ""
    """Folder of the pictures, where the table only names them and does not lie beside them."""


def load(options: PluginOptions, progress: Progress | None) -> BenchmarkData:
    """Every question that has a figure. Raises BenchmarkError."""
    chosen = narrow(options, Options)
    table = open_table(chosen, "hallusion_bench", _PATTERNS, chosen.pictures)
    harvest = Harvest("hallusion_bench", str(table.root))
    for row in table.each(progress):
        if row.get("visual_input") == "0":
            harvest.skip("no figure", _item_id(row), table.pictures.of(row, "image"))
        else:
            harvest.items.append(_item(row, table))
    return harvest.data(table.digest(), {"items": (len(harvest.items), N_ITEMS)}, chosen.allow_partial)


def _item_id(row: Row) -> str:
    """`VD_illusion_0_1_0`: category, subcategory, set, figure, question; VLMEvalKit's index holds the last three."""
    numbers = [row.get(name) for name in ("set_id", "figure_id", "question_id")]
    last = "_".join(numbers) if all(numbers) else row.need("index")
    return "_".join((row.need("category"), row.need("subcategory", "l2-category"), last))


def _item(row: Row, table: Table) -> Item:
    category, question, item_id = row.among("category", SKILLS), row.need("question"), _item_id(row)
    key = row.get("gt_answer", "answer")
    images = table.pictures.of(row, "image") or (table.pictures.file(row.need("filename"), row.where),)
    tags = {"subcategory": row.need("subcategory", "l2-category")}
    if row.get("visual_input") in _VISUAL:
        tags["visual_input"] = _VISUAL[row.get("visual_input")]
    return Item(
        item_id=item_id,
        category=category,
        skill=SKILLS[category],
        question=question,
        choices=YES_NO,
        answer=letter_of(_KEY.get(key, key), YES_NO, row.where),
        prompt=item_prompt(question, YES_NO),
        images=images,
        group="_".join(item_id.split("_")[:-2]),
        tags=tags,
    )


BENCHMARK = Benchmark(
    name="hallusion_bench",
    version=1,
    options=Options,
    licence="BSD-3-Clause",
    skills=SKILLS,
    human={},
    n_options=dict.fromkeys(SKILLS, 2),
    choices=dict.fromkeys(SKILLS, YES_NO),
    load=load,
)
