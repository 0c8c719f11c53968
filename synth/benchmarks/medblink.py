"""MedBLINK (2025): perception in medical pictures, multiple choice. A perception probe, never a clinical claim.

Read from a copy of MahtabBg/MedBLINK. Its columns are not documented where this could be checked, so `columns` must
name them; a wrong name is answered with the names that are there. The same plug-in reads any table of this kind with
`allow_partial`.
"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict, Field

from synth.benchmarks._choices import letter_of, split_options
from synth.benchmarks._harvest import Harvest
from synth.benchmarks._tables import Row, Table, TableOptions, open_table
from synth.contracts import Benchmark, BenchmarkData
from synth.dataset.prompt import item_prompt
from synth.errors import BenchmarkError
from synth.types import LETTERS, Item, PluginOptions, Progress, Skill, narrow

N_ITEMS = 1429
_PATTERNS = ("**/*.parquet", "**/*.tsv", "**/*.jsonl", "**/*.csv")


class Columns(BaseModel):
    """What the columns of the table are called."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    question: str
    answer: str
    """A letter, an option's text or, with `first_option`, an option's number."""
    images: tuple[str, ...] = Field(min_length=1)
    """Columns of pictures, in the order in which a model sees them; a column may hold a list."""
    category: str
    choices: str = ""
    """A list of option texts; "" where they stand in the columns A, B, C … or in the question."""
    item_id: str = ""
    """"" counts the rows."""


class Options(TableOptions):
    """Where the copy is and how it is laid out."""

    repo: str = "MahtabBg/MedBLINK"
    columns: Columns
    first_option: int | None = Field(default=None, ge=0, le=1)
    """Number of the first option where the answers are numbers."""
    answers_are_choices: bool = False
    """Where a row names no options, offer the answers that occur in its category, sorted."""
    skills: Mapping[str, Skill] = Field(default_factory=dict)
    """Category -> skill; `other` for those not named."""
    pictures: str = ""
    """Folder of the pictures, where the table only names them and does not lie beside them."""


def load(options: PluginOptions, progress: Progress | None) -> BenchmarkData:
    """Every item with its pictures. Raises BenchmarkError."""
    chosen = narrow(options, Options)
    table = open_table(chosen, "medblink", _PATTERNS, chosen.pictures)
    _check_columns(table, chosen.columns)
    offered = _answers(table, chosen.columns) if chosen.answers_are_choices else {}
    harvest = Harvest("medblink", str(table.root))
    for row in table.each(progress):
        images = table.pictures.of(row, *chosen.columns.images)
        harvest.take(_item(row, chosen, offered, images), _item_id(row, chosen.columns), images)
    return harvest.data(table.digest(), {"rows": (len(table.rows), N_ITEMS)}, chosen.allow_partial)


def _check_columns(table: Table, columns: Columns) -> None:
    there = dict.fromkeys(name for row in table.rows for name in row.cells)
    named = (columns.question, columns.answer, *columns.images, columns.category, columns.choices, columns.item_id)
    missing = [name for name in named if name and name not in there]
    if missing:
        raise BenchmarkError(
            f"no column {', '.join(missing)}",
            where=str(table.root),
            fix=f"set columns.question, .answer, .images, .category (.choices, .item_id); there are {', '.join(there)}",
        )


def _answers(table: Table, columns: Columns) -> dict[str, tuple[str, ...]]:
    """Category -> its different answers; those with one, or more than letters, offer nothing."""
    found: dict[str, set[str]] = {}
    for row in table.rows:
        found.setdefault(row.get(columns.category), set()).add(row.get(columns.answer).casefold())
    sets = {category: tuple(sorted(answers - {"", "hidden"})) for category, answers in found.items()}
    return {category: answers for category, answers in sets.items() if 2 <= len(answers) <= len(LETTERS)}


def _item_id(row: Row, columns: Columns) -> str:
    return row.need(columns.item_id) if columns.item_id else str(row.number)


def _item(row: Row, chosen: Options, offered: Mapping[str, tuple[str, ...]], images: tuple[bytes, ...]) -> Item | str:
    """The item, or why there is none."""
    columns = chosen.columns
    text, category = row.need(columns.question), row.need(columns.category)
    question, choices = text, row.texts(columns.choices) if columns.choices else row.lettered()
    prompt = ""
    if not choices:
        found = split_options(text)
        if found is not None:
            (question, choices), prompt = found, text
        else:
            choices = offered.get(category, ())
    if not 2 <= len(choices) <= len(LETTERS):
        return "no options"
    return Item(
        item_id=_item_id(row, columns),
        category=category,
        skill=chosen.skills.get(category, Skill.OTHER),
        question=question,
        choices=choices,
        answer=letter_of(row.get(columns.answer), choices, row.where, chosen.first_option),
        prompt=prompt or item_prompt(question, choices),
        images=images,
    )


BENCHMARK = Benchmark(
    name="medblink",
    version=1,
    options=Options,
    licence="unknown: check the card",
    skills={},
    human={},
    n_options={},
    choices={},
    load=load,
)
