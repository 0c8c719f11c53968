"""Why a pair has its answer: the stored numbers, the answer recomputed from them, and both drawn on the pictures."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from synth.dataset.figure import figure
from synth.dataset.prompt import item_prompt
from synth.dataset.shards import read_rows
from synth.errors import DatasetError
from synth.images import decode
from synth.plugins import TASKS, load
from synth.types import JsonValue, Mark, Provenance

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
    """A pair's numbers in words and in a picture."""

    qa_id: str
    text: str
    agrees: bool
    """Whether the recomputed answer is the stored one."""
    png: bytes
    """The pictures with their marks, boxes and numbers."""


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
    found = [row for row in read_rows(dataset, (*COLUMNS, "images")) if str(row["qa_id"]).startswith(qa_id)]
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
    words = [*item_prompt(str(row["question"]), texts).splitlines(), *lines[5:8]]
    return Explanation(
        qa_id=str(row["qa_id"]), text="\n".join(lines), agrees=again == row["answer"], png=_drawn(row, words)
    )


def _drawn(row: Mapping[str, JsonValue], words: Sequence[str]) -> bytes:
    value = json.loads(str(row["provenance"]))
    images = row["images"]
    files = [image["bytes"] for image in images if isinstance(image, Mapping)] if isinstance(images, list) else []
    marks = [[Mark(label=m["label"], x=m["x"], y=m["y"]) for m in panel["marks"]] for panel in value["panels"]]
    pictures = [decode(data, min_side=1) for data in files if isinstance(data, bytes)]
    return figure(pictures, marks, value["measures"], words)
