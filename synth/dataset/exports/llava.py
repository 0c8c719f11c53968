"""LLaVA's format: `data.json` with `conversations`, pictures beside it in `images/`.

Read by LLaVA's own trainer and, as "sharegpt" with from/value tags, by LLaMA-Factory and ms-swift.
"""

from __future__ import annotations

import io
from pathlib import Path

from PIL import Image

from synth.contracts import Export
from synth.dataset.prompt import item_prompt
from synth.dataset.shards import read_rows
from synth.errors import DatasetError
from synth.files import write_bytes, write_json
from synth.types import JsonValue

COLUMNS = ("qa_id", "images", "question", "choices", "answer", "task", "skill")


def write(dataset: Path, out: Path) -> int:
    """Write every row of both splits; `out` must be new or empty. Returns the number of rows."""
    if out.exists() and any(out.iterdir()):
        raise DatasetError("the folder is not empty", where=str(out), fix="give a new --out folder")
    records: list[JsonValue] = []
    for row in read_rows(dataset, COLUMNS):
        names = _pictures(row, out)
        choices = row["choices"]
        texts = [str(choice) for choice in choices] if isinstance(choices, list) else []
        question = "<image>\n" * len(names) + item_prompt(str(row["question"]), texts)
        record: dict[str, JsonValue] = {
            "id": row["qa_id"],
            "image": names[0] if len(names) == 1 else names,
            "conversations": [{"from": "human", "value": question}, {"from": "gpt", "value": row["answer"]}],
            "task": row["task"],
            "skill": row["skill"],
        }
        records.append(record)
    write_json(out / "data.json", records)
    return len(records)


def _pictures(row: dict[str, JsonValue], out: Path) -> list[str]:
    """Write a row's pictures as they are; their names come from our id, never from the user's files."""
    names = []
    images = row["images"]
    for number, image in enumerate(images if isinstance(images, list) else []):
        data = image["bytes"] if isinstance(image, dict) else None
        if not isinstance(data, bytes):
            raise DatasetError(f"{row['qa_id']}: a picture without bytes")
        kind = (Image.open(io.BytesIO(data), formats=("JPEG", "PNG")).format or "").lower()
        name = f"images/{row['qa_id']}-{number}.{'jpg' if kind == 'jpeg' else kind}"
        write_bytes(out / name, data)
        names.append(name)
    return names


EXPORT = Export(name="llava", version=1, write=write)
