"""A dataset folder as the rows that a trainer takes, and what its certificate says."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from synth.errors import DatasetError
from synth.guard.certificate import CLEAN

if TYPE_CHECKING:
    from datasets import Dataset

TRAINER_COLUMNS = ("images", "prompt", "completion")
KEPT_COLUMNS = (
    *TRAINER_COLUMNS,
    *("qa_id", "task", "skill", "role", "stratum", "difficulty", "choices", "answer", "source_group"),
)
NEEDED_COLUMNS = (*TRAINER_COLUMNS, "qa_id", "answer", "choices")


def shards(folder: Path, split: str = "train") -> list[Path]:
    """The parquet files of a split, in order. Raises DatasetError when there are none."""
    files = sorted((folder / "data").glob(f"{split}-*.parquet"))
    if not files:
        raise DatasetError(
            f"no data/{split}-*.parquet in this folder",
            where=str(folder),
            fix="give a folder that `s2p generate` wrote",
        )
    return files


def read_rows(folder: Path, split: str = "train", *, cache: Path | None = None, also: Sequence[str] = ()) -> Dataset:
    """The rows of a split: images, prompt and completion for the trainer, and the columns that name a row.

    `cache` is where the Arrow copy goes (default: the datasets library's own); `also` names further columns to keep
    where the dataset has them. Raises DatasetError for missing columns.
    """
    import pyarrow as pa
    from datasets import Image, List, load_dataset
    from datasets.exceptions import DatasetGenerationError

    files = [str(path) for path in shards(folder, split)]
    try:
        rows = load_dataset("parquet", data_files=files, split="train", cache_dir=None if cache is None else str(cache))
    except (DatasetGenerationError, pa.ArrowInvalid, ValueError) as error:
        reason = " ".join(str(error.__cause__ or error).split())
        raise DatasetError(f"the parquet files cannot be read: {reason[:300]}", where=str(folder)) from None
    missing = [name for name in NEEDED_COLUMNS if name not in rows.column_names]
    if missing:
        raise DatasetError(
            f"columns are missing: {', '.join(missing)}; found {', '.join(rows.column_names)}",
            where=str(folder),
            fix="give a folder that `s2p generate` wrote",
        )
    if not len(rows):
        raise DatasetError(f"split {split!r} has no rows", where=str(folder))
    rows = rows.select_columns([name for name in (*KEPT_COLUMNS, *also) if name in rows.column_names])
    # Files of ours say in their metadata that this column holds images; the cast, which copies, is for others.
    wanted = List(Image())
    return rows if rows.features["images"] == wanted else rows.cast_column("images", wanted)


def certificate_verdict(folder: Path) -> str:
    """What the contamination guard says of a dataset: its verdict, or why there is none."""
    path = folder / "certificate.json"
    if not path.is_file():
        return "no certificate.json"
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError):
        return "certificate.json is not readable"
    verdict = data.get("verdict") if isinstance(data, dict) else None
    return verdict if isinstance(verdict, str) else "certificate.json names no verdict"


def certified_benchmarks(folder: Path) -> tuple[str, ...]:
    """The benchmarks that the dataset's certificate speaks of; none where there is no readable one."""
    try:
        data = json.loads((folder / "certificate.json").read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError, UnicodeDecodeError):
        return ()
    found = data.get("benchmarks") if isinstance(data, dict) else None
    return tuple(str(one["name"]) for one in found or () if isinstance(one, dict) and "name" in one)


def require_certificate(folder: Path, benchmark: str = "") -> None:
    """Raises DatasetError unless the guard found the dataset clean, and of this benchmark where one is named."""
    verdict = certificate_verdict(folder)
    if verdict != CLEAN:
        raise DatasetError(
            f"the dataset is not certified free of the benchmark: {verdict}",
            where=str(folder),
            fix="run `s2p guard check` on it, or set allow_uncertified: true and do not report benchmark gains",
        )
    held_out = certified_benchmarks(folder)
    if benchmark and benchmark not in held_out:
        raise DatasetError(
            f"certified for {', '.join(held_out) or 'none'}, and the model is judged on {benchmark}",
            where=str(folder),
            fix="generate with guard.benchmark set to it, or set allow_uncertified: true and report no gain on it",
        )
