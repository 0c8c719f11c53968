"""The outputs that BLINK's authors release: one folder a model, one JSON file a task, raw replies beside read letters.

`{"val": [{"idx", "answer", "full_prediction", "prediction"}, …], "test": [… answer "hidden"]}`; file names use blanks
or underscores. The category is read from `idx`, which is the same in both. Also the flat file of predictions alone,
`{idx: "(A)"}`, which has no key: its rows are unscored unless the benchmark is given. Replies to images glued side by
side (`<model>* concatenate images/<Task>_concat.json`) are another condition: tag `layout`, and "(concat)" behind the
model's name, so that they never pass for replies to separate images. Source: zeyofu/BLINK_Benchmark.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from synth.contracts import ResultsFormat
from synth.errors import ResultsError
from synth.results._datasets import images_of
from synth.results._values import letter
from synth.types import Reply

_SPLITS = ("val", "test")
_HEAD = 65_536
_IDX = re.compile(r"(?:val|test)_(.+)_\d+")
_FLAT = re.compile(rb'\s*\{\s*"(?:val|test)_[^"]+_\d+"\s*:\s*(?:"|null)')
_GLUED = re.compile(r"\*?[ _]concat(?:enate)?(?:[ _]images)?$")


def _looks_like(path: Path) -> bool:
    if path.suffix.lower() != ".json":
        return False
    try:
        with path.open("rb") as handle:
            head = handle.read(_HEAD)
    except OSError:
        return False
    rows = head.lstrip()[:1] == b"{" and all(key in head for key in (b'"idx"', b'"full_prediction"', b'"answer"'))
    return rows or _FLAT.match(head) is not None


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
    if not data.keys() & set(_SPLITS):
        for idx, said in data.items():
            row = {"idx": idx, "answer": "hidden", "full_prediction": None, "prediction": said}
            yield _reply(row, _run(file.stem, ""), f"{file}: {idx}")
        return
    run = _run(file.resolve().parent.name, file.stem)
    for split in _SPLITS:
        rows = data.get(split, [])
        if not isinstance(rows, list):
            raise ResultsError(f"expected a list, found {type(rows).__name__}", where=f"{file}: {split}")
        for number, row in enumerate(rows):
            yield _reply(row, run, f"{file}: {split}[{number}]")


def _run(name: str, task: str) -> tuple[str, bool]:
    """(the model's name, whether its images were glued together), from the names of a folder and of a file in it."""
    model = _GLUED.sub("", name)
    glued = model != name or _GLUED.search(task) is not None
    return (f"{model} (concat)" if glued else model), glued


def _reply(row: object, run: tuple[str, bool], where: str) -> Reply:
    if not isinstance(row, Mapping):
        raise ResultsError(f"expected an object, found {type(row).__name__}", where=where)
    idx, answer, text = (_string(row, key, where) for key in ("idx", "answer", "full_prediction"))
    parts = _IDX.fullmatch(idx or "")
    if idx is None or parts is None:
        raise ResultsError(f"expected an idx such as val_Relative_Depth_7, found {idx!r}", where=where)
    gold = letter(answer)
    if gold is None and answer != "hidden":
        raise ResultsError(f"expected an answer such as (A), or hidden, found {answer!r}", where=where)
    released = row.get("prediction")
    category = parts[1].replace(" ", "_")
    model, glued = run
    return Reply(
        item_id=idx.replace(" ", "_"),
        category=category,
        model=model,
        text=text,
        gold=gold,
        released=(letter(released) or "Z") if isinstance(released, str) else None,
        n_images=1 if glued else images_of("blink", category),
        benchmark="blink",
        tags={"layout": "concat"} if glued else {},
    )


def _string(row: Mapping[object, object], key: str, where: str) -> str | None:
    if key not in row:
        raise ResultsError(f"no key {key!r}", where=where)
    value = row[key]
    if value is not None and not isinstance(value, str):
        raise ResultsError(f"expected text under {key!r}, found {type(value).__name__}", where=where)
    # A lone surrogate (half an emoji) is legal in JSON and cannot be written as UTF-8 again.
    return value.encode("utf-8", "replace").decode("utf-8") if isinstance(value, str) else None


RESULTS = ResultsFormat(
    name="blink_outputs",
    version=2,
    benchmark="blink",
    sniff=sniff,
    read=read,
    looks_for='.json files {"val": [{"idx", "answer", "full_prediction"}]} or {"val_Counting_1": "(A)"} (BLINK\'s own)',
)
