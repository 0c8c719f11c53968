"""CV-Bench (Tong et al. 2024): counting and relations in the plane, depth order and distance in space.

Read from a copy of nyu-visionx/CV-Bench (`test_2d.parquet`, `test_3d.parquet`). Its own score is not the plain mean:
half the mean of ADE20K and COCO, half Omni3D; the tag `source` says which an item is of.
"""

from __future__ import annotations

from synth.benchmarks._choices import letter_of
from synth.benchmarks._harvest import Harvest
from synth.benchmarks._tables import TableOptions, open_table
from synth.contracts import Benchmark, BenchmarkData
from synth.dataset.prompt import item_prompt
from synth.types import Item, PluginOptions, Progress, Skill, narrow

N_ITEMS = 2638
SKILLS = {
    "Count": Skill.COUNTING,
    "Relation": Skill.SPATIAL_RELATION,
    "Depth": Skill.RELATIVE_DEPTH,
    # Which of two objects is nearer to a third one: no order along the camera's axis tells it.
    "Distance": Skill.OTHER,
}
_PATTERNS = ("**/test*.parquet", "**/*.parquet")


class Options(TableOptions):
    """Where the copy is."""

    repo: str = "nyu-visionx/CV-Bench"


def load(options: PluginOptions, progress: Progress | None) -> BenchmarkData:
    """Every item with its picture. Raises BenchmarkError."""
    chosen = narrow(options, Options)
    table = open_table(chosen, "cv_bench", _PATTERNS)
    harvest = Harvest("cv_bench", str(table.root))
    for row in table.each(progress):
        category = row.among("task", SKILLS)
        question, choices = row.need("question"), row.texts("choices")
        item = Item(
            item_id=f"{category}_{row.need('idx')}",
            category=category,
            skill=SKILLS[category],
            question=question,
            choices=choices,
            answer=letter_of(row.get("answer"), choices, row.where),
            prompt=row.get("prompt") or item_prompt(question, choices),
            images=table.pictures.of(row, "image"),
            tags={name: row.get(name) for name in ("type", "source") if row.get(name)},
        )
        harvest.items.append(item)
    return harvest.data(table.digest(), {"items": (len(harvest.items), N_ITEMS)}, chosen.allow_partial)


BENCHMARK = Benchmark(
    name="cv_bench",
    version=1,
    options=Options,
    licence="Apache-2.0 (the pictures keep the terms of ADE20K, COCO and Omni3D)",
    skills=SKILLS,
    human={},
    n_options={"Relation": 2, "Depth": 2, "Distance": 2},
    choices={},
    load=load,
)
