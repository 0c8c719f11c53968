"""One row is one question, self-contained: pictures as shown to the model, text, answer and the numbers behind it.

The columns are TRL's conversational prompt-completion format (`images`, `prompt`, `completion`: the loss falls on the
answer alone) beside our own. Pixels live only in `images`; the message blocks hold `{"type": "image"}` placeholders,
one a picture, because a payload inside a block would add a null key to every block once Arrow has unified the struct.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from synth.dataset.prompt import item_prompt
from synth.geometry import generator
from synth.images import encode_jpeg, encode_png
from synth.marks import draw_marks
from synth.types import LETTERS, QA, Box, JsonValue, Rgb, Scene, View

ImageFormat = Literal["png", "jpeg"]


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A drawn panel: its pixels, its file, and the boxes where our own marks lie (pixels)."""

    rgb: Rgb
    data: bytes
    drawn: tuple[Box, ...]


@dataclass(frozen=True, kw_only=True)
class Row:
    """A dataset row before it is Arrow."""

    qa: QA
    pictures: tuple[Picture, ...]
    source: str
    source_name: str
    group: str
    licence: str
    domain: str
    role: Literal["target", "replay"]
    guarded: bool
    others: tuple[View, ...] = ()
    """Further photos that the question shows."""


def draw(qa: QA, scene: Scene, image_format: ImageFormat) -> tuple[Picture, ...]:
    """Draw and encode the panels of a question."""
    pictures = []
    for index, panel in enumerate(qa.panels):
        rgb = scene.picture(panel)
        if rgb is None:
            raise ValueError(f"{qa.qa_id}: a panel of a second picture, and the scene has none")
        drawn = draw_marks(rgb, panel.marks, generator(index, "marks", qa.qa_id))
        data = encode_png(drawn.rgb) if image_format == "png" else encode_jpeg(drawn.rgb)
        pictures.append(Picture(rgb=drawn.rgb, data=data, drawn=tuple(drawn.boxes)))
    return tuple(pictures)


def text_type() -> pa.DataType:
    """Arrow type of a chat message list."""
    block = pa.struct([("type", pa.string()), ("text", pa.string())])
    return pa.list_(pa.struct([("role", pa.string()), ("content", pa.list_(block))]))


def schema() -> pa.Schema:
    """Arrow schema of a dataset file, with the `datasets` features in its metadata."""
    fields = [
        ("qa_id", pa.string()),
        ("images", pa.list_(pa.struct([("bytes", pa.binary()), ("path", pa.string())]))),
        ("prompt", text_type()),
        ("completion", text_type()),
        ("question", pa.string()),
        ("choices", pa.list_(pa.string())),
        ("answer", pa.string()),
        ("task", pa.string()),
        ("skill", pa.string()),
        ("role", pa.string()),
        ("difficulty", pa.float32()),
        ("stratum", pa.string()),
        ("source", pa.string()),
        ("source_name", pa.string()),
        ("source_group", pa.string()),
        ("license", pa.string()),
        ("image_ids", pa.list_(pa.string())),
        ("guarded", pa.bool_()),
        ("provenance", pa.string()),
    ]
    plain = pa.schema(fields)
    return plain.with_metadata({"huggingface": json.dumps({"info": {"features": _features(plain)}})})


def to_tables(records: Sequence[Mapping[str, object]], size: int) -> Iterator[pa.Table]:
    """Records as Arrow tables of `schema()`, `size` rows each."""
    for start in range(0, len(records), size):
        yield pa.Table.from_pylist(list(records[start : start + size]), schema=schema())


def record(row: Row) -> dict[str, object]:
    """A row's columns by name. It holds no pixels, only the pictures' files."""
    qa = row.qa
    text = item_prompt(qa.question, qa.choices)
    blocks: list[Mapping[str, str | None]] = [{"type": "image", "text": None} for _ in row.pictures]
    blocks.append({"type": "text", "text": text})
    return {
        "qa_id": qa.qa_id,
        "images": [{"bytes": picture.data, "path": None} for picture in row.pictures],
        "prompt": [{"role": "user", "content": blocks}],
        "completion": [{"role": "assistant", "content": [{"type": "text", "text": qa.answer}]}],
        "question": qa.question,
        "choices": list(qa.choices),
        "answer": qa.answer,
        "task": qa.task,
        "skill": str(qa.skill),
        "role": row.role,
        "difficulty": qa.difficulty,
        "stratum": qa.stratum,
        "source": row.source,
        "source_name": row.source_name,
        "source_group": row.group,
        "license": " and ".join(dict.fromkeys([row.licence, *(view.licence for view in row.others)])),
        "image_ids": [qa.image_id, *(view.image_id for view in row.others)],
        "guarded": row.guarded,
        "provenance": provenance_json(row),
    }


def provenance_json(row: Row) -> str:
    """The provenance with the marks and where they were drawn, as one JSON object with sorted keys."""
    value = row.qa.provenance.plain()
    value["domain"] = row.domain
    value["panels"] = [
        {
            "image": panel.image,
            "marks": [{"label": m.label, "x": m.x, "y": m.y} for m in panel.marks],
            "drawn": [list(box) for box in picture.drawn],
        }
        for panel, picture in zip(row.qa.panels, row.pictures, strict=True)
    ]
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def answer_text(choices: Sequence[str], letter: str) -> str:
    """The text of the choice that a letter names."""
    return choices[LETTERS.index(letter)]


def _features(plain: pa.Schema) -> dict[str, JsonValue]:
    """The `datasets` feature description of our columns."""
    return {name: _feature(name, plain.field(name).type) for name in plain.names}


def _feature(name: str, kind: pa.DataType) -> JsonValue:
    if name == "images":
        return {"feature": {"_type": "Image"}, "_type": "List"}
    if pa.types.is_list(kind):
        return {"feature": _feature("", kind.value_type), "_type": "List"}
    if pa.types.is_struct(kind):
        return {kind.field(i).name: _feature("", kind.field(i).type) for i in range(kind.num_fields)}
    names = {pa.string(): "string", pa.float32(): "float32", pa.bool_(): "bool"}
    return {"dtype": names[kind], "_type": "Value"}
