"""The outputs that BLINK's authors release: one folder a model, one JSON file a task, raw replies beside read letters.

`{"val": [{"idx", "answer", "full_prediction", "prediction"}, …], "test": [… answer "hidden"]}`; file names use blanks
or underscores. The category is read from `idx`, which is the same in both. Source: zeyofu/BLINK_Benchmark.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from synth.errors import ResultsError
from synth.types import Reply, ResultsFormat

IMAGES = {
    "Art_Style": 3,
    "Forensic_Detection": 4,
    "Functional_Correspondence": 2,
    "Jigsaw": 3,
    "Multi-view_Reasoning": 2,
    "Semantic_Correspondence": 2,
    "Visual_Correspondence": 2,
    "Visual_Similarity": 3,
}
"""Images an item, where it is not one."""
_SPLITS = ("val", "test")
_HEAD = 65_536
_IDX = re.compile(r"(?:val|test)_(.+)_\d+")
_LETTER = re.compile(r"\s*\(?([A-Z])(?:\)|\s*$)")


def _looks_like(path: Path) -> bool:
    if path.suffix.lower() != ".json":
        return False
    try:
        with path.open("rb") as handle:
            head = handle.read(_HEAD)
    except OSError:
        return False
    return head.lstrip()[:1] == b"{" and all(key in head for key in (b'"idx"', b'"full_prediction"', b'"answer"'))


def _files(path: Path) -> list[Path]:
    candidates = sorted(path.glob("*.json")) if path.is_dir() else [path]
    return [file for file in candidates if file.is_file() and _looks_like(file)]


def sniff(path: Path) -> bool:
    """True for a file of this shape, or a folder with one; other files in the folder do not matter."""
    return bool(_files(path))


def read(path: Path) -> Iterator[Reply]:
    """Every row of the model's files, val before test. Raises ResultsError with the file and the row."""
    files = _files(path)
    if not files:
        raise ResultsError(
            "no file of BLINK's released outputs",
            where=str(path),
            fix='give the folder of one model, with files {"val": [{"idx", "answer", "full_prediction", …}]}',
        )
    for file in files:
        yield from _read_file(file)


def _read_file(file: Path) -> Iterator[Reply]:
    try:
        data: object = json.loads(file.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ResultsError(
            f"not JSON: {error.msg}", where=f"{file}:{error.lineno}", fix="the file is cut off; fetch it again"
        ) from None
    except UnicodeDecodeError as error:
        raise ResultsError(f"not UTF-8: {error.reason}", where=str(file), fix="fetch the file again") from None
    if not isinstance(data, dict):
        raise ResultsError("expected an object with val or test", where=str(file))
    for split in _SPLITS:
        rows = data.get(split, [])
        if not isinstance(rows, list):
            raise ResultsError(f"expected a list, found {type(rows).__name__}", where=f"{file}: {split}")
        for number, row in enumerate(rows):
            yield _reply(row, file, f"{file}: {split}[{number}]")


def _reply(row: object, file: Path, where: str) -> Reply:
    if not isinstance(row, Mapping):
        raise ResultsError(f"expected an object, found {type(row).__name__}", where=where)
    idx, answer, text = (_string(row, key, where) for key in ("idx", "answer", "full_prediction"))
    parts = _IDX.fullmatch(idx or "")
    if idx is None or parts is None:
        raise ResultsError(f"expected an idx such as val_Relative_Depth_7, found {idx!r}", where=where)
    gold = None if answer is None or answer == "hidden" else _letter(answer)
    if gold is None and answer != "hidden":
        raise ResultsError(f"expected an answer such as (A), or hidden, found {answer!r}", where=where)
    released = row.get("prediction")
    category = parts[1].replace(" ", "_")
    return Reply(
        item_id=idx.replace(" ", "_"),
        category=category,
        model=file.parent.name,
        text=text,
        gold=gold,
        released=_letter(released) if isinstance(released, str) else None,
        n_images=IMAGES.get(category, 1),
    )


def _string(row: Mapping[object, object], key: str, where: str) -> str | None:
    if key not in row:
        raise ResultsError(f"no key {key!r}", where=where)
    value = row[key]
    if value is not None and not isinstance(value, str):
        raise ResultsError(f"expected text under {key!r}, found {type(value).__name__}", where=where)
    # A lone surrogate (half an emoji) is legal in JSON and cannot be written as UTF-8 again.
    return value.encode("utf-8", "replace").decode("utf-8") if isinstance(value, str) else None


def _letter(text: str) -> str | None:
    """ "(C)", "(C) Point C" and "C" → C."""
    m = _LETTER.match(text)
    return m[1] if m is not None else None


RESULTS = ResultsFormat(name="blink_outputs", version=1, benchmark="blink", sniff=sniff, read=read)
