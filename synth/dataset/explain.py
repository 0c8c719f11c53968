"""Why a pair has its answer: the stored numbers, and the answer recomputed from them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from synth.dataset.prompt import item_prompt
from synth.dataset.shards import read_rows
from synth.errors import DatasetError
from synth.plugins import TASKS, load
from synth.types import JsonValue, Provenance

COLUMNS = (
    "qa_id",
    "question",
    "choices",
    "answer",
    "task",
    "skill",
    "source_name",
    "license",
    "difficulty",
    "provenance",
)


@dataclass(frozen=True)
class Explanation:
    """A pair's numbers in words."""

    text: str
    agrees: bool
    """Whether the recomputed answer is the stored one."""


def provenance_of(row: dict[str, JsonValue]) -> Provenance:
    """The provenance record of a dataset row."""
    value = json.loads(str(row["provenance"]))
    return Provenance(
        task=value["task"],
        version=value["version"],
        wording=value["wording"],
        backends=tuple(value["backends"]),
        options=tuple(value["options"]),
        measures=value["measures"],
    )


def explain(dataset: Path, qa_id: str) -> Explanation:
    """Find a pair by its id (or a beginning that is unique) and recompute it. Raises DatasetError."""
    found = [row for row in read_rows(dataset, COLUMNS) if str(row["qa_id"]).startswith(qa_id)]
    if len(found) != 1:
        what = "no pair" if not found else f"{len(found)} pairs"
        raise DatasetError(f"{what} with an id that begins with {qa_id!r}", where=str(dataset))
    row = found[0]
    provenance = provenance_of(row)
    again = load(TASKS, str(row["task"])).recompute(provenance)
    choices = row["choices"]
    texts = [str(choice) for choice in choices] if isinstance(choices, list) else []
    lines = [
        f"{row['qa_id']}  ({row['task']}, {row['skill']}, difficulty {row['difficulty']:.2f})",
        f"photo: {row['source_name']}  licence: {row['license']}",
        "",
        item_prompt(str(row["question"]), texts),
        "",
        f"stored answer:     {row['answer']}",
        f"recomputed answer: {again}{'' if again == row['answer'] else '   <-- does not agree'}",
        f"measured by: {', '.join(provenance.backends) or 'geometry alone'}",
        json.dumps(provenance.measures, indent=2, ensure_ascii=False),
    ]
    return Explanation("\n".join(lines), again == row["answer"])
