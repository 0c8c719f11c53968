"""Control arms: the same training on rows that must not teach what the real rows teach.

`shuffled`: the same pictures and questions, the answers dealt anew. `grey`: the same questions and answers beside a
grey picture of the same size, so that only format and wording can be learned. `other`: as many rows of the skills that
were not asked for. Whatever an arm gains is owed to format, wording or mere training, and not to the pairs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from synth.dataset.prompt import completion_messages
from synth.errors import DatasetError
from synth.images import encode_png, inspect

if TYPE_CHECKING:
    from datasets import Dataset

ControlKind: TypeAlias = Literal["shuffled", "grey", "other"]
GREY = 128
"""Level of a picture that shows nothing, 0..255."""


def control_rows(rows: Dataset, kind: ControlKind, seed: int, cache: Path) -> Dataset:
    """The rows of a control arm, as many as the real ones. Replay rows stay as they are.

    `cache` is a folder for the pictures of `grey`. Raises DatasetError where `other` has no rows to take.
    """
    if kind == "shuffled":
        return shuffle_answers(rows, seed)
    return grey_pictures(rows, cache) if kind == "grey" else other_rows(rows, seed)


def shuffle_answers(rows: Dataset, seed: int, *, replay: bool = False) -> Dataset:
    """Answers permuted among rows of the same skill, stratum and number of options.

    Each group keeps its letters in number, so format and letter frequencies are learned as before and only the tie
    between picture and answer is cut: rows whose true letter is the same get every letter in its share of the group,
    so that agreement with the truth is chance exactly. (A free permutation of n rows misses it by 1/sqrt(n) on average,
    and an argmax needs no more than the sign of that.) Replay rows keep their true answers unless `replay` is set.
    """
    groups: dict[tuple[str, str, int], list[int]] = defaultdict(list)
    names = set(rows.column_names)
    columns = rows.select_columns([c for c in ("skill", "task", "role", "stratum", "choices", "answer") if c in names])
    answers: list[str] = []
    for index, row in enumerate(columns):
        answers.append(row["answer"])
        if replay or row.get("role") != "replay":
            key = (str(row.get("skill") or row.get("task") or ""), str(row.get("stratum") or ""), len(row["choices"]))
            groups[key].append(index)
    rng = np.random.default_rng(seed)
    shuffled = list(answers)
    for key in sorted(groups):
        # Rows of one true letter stand together, and every stretch of the dealt letters holds each in its share.
        members = sorted((int(i) for i in rng.permutation(groups[key])), key=answers.__getitem__)
        for target, letter in zip(members, _dealt([answers[i] for i in members], rng), strict=True):
            shuffled[target] = letter
    features = rows.features
    return (
        rows.remove_columns(["answer", "completion"])
        .add_column("answer", shuffled, feature=features["answer"])
        .add_column("completion", [completion_messages(letter) for letter in shuffled], feature=features["completion"])
    )


def _dealt(letters: Sequence[str], rng: np.random.Generator) -> list[str]:
    """The same letters, each spread evenly over the whole length."""
    places = [
        ((k + offset) / count, letter)
        for letter, count in sorted(Counter(letters).items())
        for offset in [rng.random()]
        for k in range(count)
    ]
    return [letter for _, letter in sorted(places)]


def other_rows(rows: Dataset, seed: int) -> Dataset:
    """Each target row gives way to a replay row; every replay row serves as often as any other, give or take one."""
    roles = list(rows["role"]) if "role" in rows.column_names else []
    replay = [index for index, role in enumerate(roles) if role == "replay"]
    if not replay:
        raise DatasetError("a control arm of other pairs needs replay rows, and there are none", fix="plan some replay")
    rng = np.random.default_rng(seed)
    places = list(range(len(roles)))
    targets = [index for index, role in enumerate(roles) if role != "replay"]
    rounds = -(-len(targets) // len(replay))
    dealt = [int(index) for _ in range(rounds) for index in rng.permutation(replay)]
    for place, index in zip(targets, dealt, strict=False):
        places[place] = index
    return rows.select(places)


def grey_pictures(rows: Dataset, cache: Path) -> Dataset:
    """Target rows with grey pictures of the same sizes; the answers stay true."""
    from datasets import Image, List

    def grey(row: dict[str, object]) -> dict[str, object]:
        pictures = row["images"]
        if row.get("role") == "replay" or not isinstance(pictures, list):
            return {"images": pictures}
        return {"images": [{"bytes": grey_like(one["bytes"]), "path": None} for one in pictures]}

    encoded = rows.cast_column("images", List(Image(decode=False)))
    cache.mkdir(parents=True, exist_ok=True)
    plain = encoded.map(grey, features=encoded.features, cache_file_name=str(cache / "grey.arrow"))
    return plain.cast_column("images", List(Image()))


def grey_like(data: bytes) -> bytes:
    """A picture that shows nothing, of the size of an encoded one, as PNG."""
    info = inspect(data, min_side=1)
    return _grey(info.width, info.height)


@lru_cache(maxsize=64)
def _grey(width: int, height: int) -> bytes:
    return encode_png(np.full((height, width, 3), GREY, np.uint8))
