"""Finished rows as a blind solver sees them: words, marks, and the heads of the picture files."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from synth.audit.cues import Asked, Shown, subjects_of
from synth.dataset.shards import batches, data_files, open_parquet
from synth.types import LETTERS, Box, JsonValue, Mark

if TYPE_CHECKING:
    import pyarrow as pa

_COLUMNS = ("qa_id", "task", "skill", "source_group", "question", "choices", "answer", "provenance")
_HEAD = 4096
"""Bytes of a picture that hold its size and quantisation tables; our own files need 640."""


def asked_rows(dataset: Path) -> list[Asked]:
    """Every row, in file order. Raises DatasetError where there is none."""
    pairs: list[Asked] = []
    for path in data_files(dataset):
        with open_parquet(path) as file:
            for batch in batches(file, [*_COLUMNS, "images"]):
                heads = _heads(batch.column("images"))
                pairs += (_asked(row, next(heads)) for row in batch.select(_COLUMNS).to_pylist())
    return pairs


def _heads(images: pa.ListArray) -> Iterator[list[tuple[bytes, int]]]:
    """Beginning and length of each row's files; the files themselves are not copied."""
    import pyarrow.compute as pc

    data = images.flatten().field("bytes")
    sizes = pc.binary_length(data).to_pylist()
    found = list(zip(pc.binary_slice(data, 0, _HEAD).to_pylist(), sizes, strict=True))
    start = 0
    for n in pc.list_value_length(images).to_pylist():
        yield found[start : start + n]
        start += n


def _asked(row: Mapping[str, JsonValue], heads: Sequence[tuple[bytes, int]]) -> Asked:
    provenance = json.loads(str(row["provenance"]))
    choices = row["choices"]
    pictures = [_shown(head, size, panel) for (head, size), panel in zip(heads, provenance["panels"], strict=True)]
    return Asked(
        qa_id=str(row["qa_id"]),
        task=str(row["task"]),
        skill=str(row["skill"]),
        group=str(row["source_group"]),
        question=str(row["question"]),
        choices=tuple(str(choice) for choice in choices) if isinstance(choices, list) else (),
        options=tuple(provenance["options"]),
        answer=LETTERS.index(str(row["answer"])),
        subjects=subjects_of(provenance["measures"]),
        pictures=tuple(pictures),
    )


def _shown(head: bytes, size: int, panel: Mapping[str, JsonValue]) -> Shown:
    from PIL import Image

    with Image.open(io.BytesIO(head), formats=("JPEG", "PNG")) as image:
        width, height = image.size
        steps = getattr(image, "quantization", {}).get(0, ())
    return Shown(
        width=width,
        height=height,
        size=size,
        coarseness=sum(steps) / len(steps) if steps else 0.0,
        marks=tuple(_marks(panel["marks"])),
        drawn=tuple(_boxes(panel["drawn"])),
    )


def _marks(value: JsonValue) -> Iterator[Mark]:
    for mark in value if isinstance(value, list) else ():
        yield Mark(label=str(mark["label"]), x=float(mark["x"]), y=float(mark["y"]))


def _boxes(value: JsonValue) -> Iterator[Box]:
    for x1, y1, x2, y2 in value if isinstance(value, list) else ():
        yield (float(x1), float(y1), float(x2), float(y2))
