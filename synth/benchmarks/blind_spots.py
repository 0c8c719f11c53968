"""Blind-spot items: what people found that models cannot do, kept as JSON lines beside their pictures.

One object a line: `id`, `task_type`, `input` (the question), `images` (paths relative to the file), `choices` (option
texts, unless they stand in the question), `reference` {`answer`: a letter or an option's text, `must`, `must_not`},
`dims`, `scorer` (rule, judge, both), `provenance`, `holdout_fold` (0 to 4), `status` (active, retired), `first_seen`.
Only active items that a rule can score are kept; the others are counted as skipped and leave their pictures to the
guard. The schema follows arXiv 2607.08317, which publishes no file of its own.
"""

from __future__ import annotations

from collections.abc import Mapping

from synth.benchmarks._choices import letter_of, split_options
from synth.benchmarks._harvest import Harvest
from synth.benchmarks._tables import Row, TableOptions, open_table
from synth.contracts import Benchmark, BenchmarkData
from synth.dataset.prompt import item_prompt
from synth.errors import BenchmarkError
from synth.types import Item, PluginOptions, Progress, Skill, narrow

FOLDS = 5
SKILLS = {
    "counting": Skill.COUNTING,
    "spatial_reasoning": Skill.SPATIAL_RELATION,
    "commonsense_composition": Skill.OTHER,
    "drawing": Skill.OTHER,
    "string_manipulation": Skill.OTHER,
}
_PATTERNS = ("items.jsonl", "*.jsonl")
_FIX = "see the docstring of synth.benchmarks.blind_spots for the keys"


class Options(TableOptions):
    """Where the items are."""


def load(options: PluginOptions, progress: Progress | None) -> BenchmarkData:
    """Every active item that a rule can score. Raises BenchmarkError."""
    chosen = narrow(options, Options)
    table = open_table(chosen, "blind_spots", _PATTERNS)
    harvest = Harvest("blind_spots", str(table.root))
    for row in table.each(progress):
        images = table.pictures.of(row, "images")
        harvest.take(_item(row, images), row.need("id"), images)
    return harvest.data(table.digest(), {}, chosen.allow_partial)


def _item(row: Row, images: tuple[bytes, ...]) -> Item | str:
    """The item, or why there is none."""
    if row.among("status", ("active", "retired")) == "retired":
        return "retired"
    if row.among("scorer", ("rule", "judge", "both")) == "judge":
        return "needs a judge"
    reference = row.cells.get("reference")
    if not isinstance(reference, Mapping):
        raise BenchmarkError(f"expected an object under reference, found {reference!r}", where=row.where, fix=_FIX)
    if not reference.get("answer"):
        return "no reference answer"
    if not images:
        return "no picture"
    text, choices = row.need("input"), row.texts("choices")
    question, prompt = text, item_prompt(text, choices)
    if not choices:
        found = split_options(text)
        if found is None:
            return "no options"
        (question, choices), prompt = found, text
    category = row.need("task_type").lower().replace(" ", "_").replace("-", "_")
    return Item(
        item_id=row.need("id"),
        category=category,
        skill=SKILLS.get(category, Skill.OTHER),
        question=question,
        choices=choices,
        answer=letter_of(reference["answer"], choices, row.where),
        prompt=prompt,
        images=images,
        tags={"fold": row.among("holdout_fold", [str(fold) for fold in range(FOLDS)])} | _dated(row),
    )


def _dated(row: Row) -> dict[str, str]:
    return {"first_seen": row.get("first_seen")} if row.get("first_seen") else {}


BENCHMARK = Benchmark(
    name="blind_spots",
    version=1,
    options=Options,
    licence="unknown: check the card",
    skills=SKILLS,
    human={},
    n_options={},
    choices={},
    load=load,
)
