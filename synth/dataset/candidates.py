"""What a work shard holds: questions that passed every check, before any of them is drawn.

A picture costs more than all the rest of its question (encoding, and the guard's look at it), so only what the quotas
choose is drawn. A candidate is one JSON text beside the columns that the choice looks at.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from synth.twins import twin_key
from synth.types import QA, JsonValue, Mark, Panel, Provenance, Skill


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A question of one image of the source."""

    qa: QA
    key: str
    """The image's key in the source."""
    group: str
    role: Literal["target", "replay"]
    width: int
    height: int
    """Of the image, pixels."""


SCHEMA = pa.schema(
    [
        ("qa_id", pa.string()),
        ("task", pa.string()),
        ("skill", pa.string()),
        ("stratum", pa.string()),
        ("answer", pa.string()),
        ("image_id", pa.string()),
        ("source_group", pa.string()),
        ("difficulty", pa.float32()),
        ("twin", pa.string()),
        ("key", pa.string()),
        ("role", pa.string()),
        ("width", pa.int32()),
        ("height", pa.int32()),
        ("qa", pa.string()),
    ]
)
LIGHT_COLUMNS = SCHEMA.names[:9]
"""All that choosing needs."""


def to_table(candidates: Sequence[Candidate]) -> pa.Table:
    """Candidates as an Arrow table of SCHEMA."""
    return pa.Table.from_pylist([_record(candidate) for candidate in candidates], schema=SCHEMA)


def candidate_of(row: Mapping[str, JsonValue]) -> Candidate:
    """The candidate of a row of SCHEMA."""
    value = json.loads(str(row["qa"]))
    qa = QA(
        **{
            **value,
            "skill": Skill(value["skill"]),
            "choices": tuple(value["choices"]),
            "panels": tuple(
                Panel(**{**panel, "marks": tuple(Mark(**mark) for mark in panel["marks"])}) for panel in value["panels"]
            ),
            "provenance": Provenance(
                **{
                    **value["provenance"],
                    "backends": tuple(value["provenance"]["backends"]),
                    "options": tuple(value["provenance"]["options"]),
                }
            ),
        }
    )
    role: Literal["target", "replay"] = "replay" if row["role"] == "replay" else "target"
    return Candidate(
        qa=qa,
        key=str(row["key"]),
        group=str(row["source_group"]),
        role=role,
        width=int(str(row["width"])),
        height=int(str(row["height"])),
    )


def _record(candidate: Candidate) -> dict[str, object]:
    qa = candidate.qa
    return {
        "qa_id": qa.qa_id,
        "task": qa.task,
        "skill": str(qa.skill),
        "stratum": qa.stratum,
        "answer": qa.answer,
        "image_id": qa.image_id,
        "source_group": candidate.group,
        "difficulty": qa.difficulty,
        "twin": twin_key(qa.provenance.measures),
        "key": candidate.key,
        "role": candidate.role,
        "width": candidate.width,
        "height": candidate.height,
        "qa": json.dumps(qa.plain(), ensure_ascii=False),
    }
