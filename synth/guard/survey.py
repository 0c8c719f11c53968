"""One pass over a finished dataset: its manifest, canaries in texts and images, questions that a benchmark asks too."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from synth import images
from synth.errors import ImageError
from synth.guard.canaries import canaries_in_image, canaries_in_text
from synth.guard.cascade import Guard, GuardVerdict
from synth.guard.index import GuardIndex
from synth.guard.options import Content
from synth.types import Box


@dataclass(frozen=True, kw_only=True)
class CertifiedRow:
    """One sample of a dataset, as the guard needs it."""

    sample_id: str
    task: str
    images: tuple[bytes, ...]
    """Encoded, marked, as they are in the dataset."""
    question: str
    choices: tuple[str, ...] = ()
    prompt: str = ""
    texts: tuple[str, ...] = ()
    """Every other text field: completion, provenance, names."""
    image_ids: tuple[str, ...] = ()
    """Ids of the source images."""
    group: str = ""
    """Source group; "" where unknown."""
    content: Content = "photograph"
    masked: tuple[tuple[Box, ...], ...] = ()
    """Boxes (px) drawn by us, one tuple an image; empty where unknown."""

    def boxes(self, number: int) -> tuple[Box, ...]:
        """What we drew on the image of that number."""
        return self.masked[number] if number < len(self.masked) else ()


@dataclass(frozen=True, kw_only=True)
class Survey:
    """What a dataset holds."""

    n_samples: int
    n_images_unique: int
    manifest_sha256: str
    """sha256 of the sorted lines 'sample_id image_sha256 question_sha256', each ended by a newline; a sample's several
    images are joined by "+", the question is hashed as it is in UTF-8. Of an image its file is hashed: every change of
    a picture changes it, no JPEG decoder has a say, and no picture is decoded for it."""
    canary_hits: tuple[str, ...]
    text_hits: tuple[str, ...]
    """Samples that ask a question of the benchmark's own, each with what they share."""
    overlap: Mapping[str, tuple[int, int]]
    """Task -> (samples, of which the question or prompt is one of the benchmark's)."""
    image_ids: frozenset[str]
    groups: frozenset[str]
    n_without_source: int
    """Samples that name no source image."""
    n_without_group: int
    """Samples whose source group is unknown."""
    outputs: tuple[GuardVerdict, ...] = field(default=())
    """The guard's word on each unique image as rendered, where it was asked."""


def survey(rows: Iterable[CertifiedRow], index: GuardIndex | None, guard: Guard | None = None) -> Survey:
    """Read every row once. With `guard`, each unique image goes through it as the final check, own marks masked.

    Raises ImageError for what is no image; damage behind a whole header shows where `guard` looks, or as a manifest
    that differs.
    """
    lines: list[str] = []
    hits: list[str] = []
    own: list[str] = []
    asked: Counter[str] = Counter()
    alike: Counter[str] = Counter()
    outputs: dict[str, GuardVerdict] = {}
    seen: set[str] = set()
    ids: set[str] = set()
    groups: set[str] = set()
    nameless = groupless = 0
    for row in rows:
        shas = []
        for number, data in enumerate(row.images):
            where = f"{row.sample_id}: image {number + 1}"
            try:
                image_id = images.inspect(data, min_side=1).image_id
                if guard is not None and image_id not in seen:
                    rgb = images.decode(data, min_side=1)
                    outputs[image_id] = guard.check(data, rgb, row.boxes(number), row.content)
            except ImageError as error:
                raise ImageError(error.message, where=where, fix="make the dataset anew") from None
            if image_id not in seen:
                hits += [f"{where}: {found}" for found in canaries_in_image(data)]
            seen.add(image_id)
            shas.append(image_id)
        lines.append(f"{row.sample_id} {'+'.join(shas)} {hashlib.sha256(row.question.encode()).hexdigest()}\n")
        texts = (row.sample_id, row.question, row.prompt, *row.choices, *row.texts)
        hits += [f"{row.sample_id}: {found}" for text in texts for found in canaries_in_text(text)]
        asked[row.task] += 1
        if index is not None:
            text = index.text.look(row.question, row.choices, row.prompt)
            alike[row.task] += text.same_wording
            own += [f"{row.sample_id}: {text.hit}"] if text.hit else []
        ids.update(row.image_ids)
        nameless += not row.image_ids
        groupless += not row.group
        groups.add(row.group)
    return Survey(
        n_samples=len(lines),
        n_images_unique=len(seen),
        manifest_sha256=hashlib.sha256("".join(sorted(lines)).encode()).hexdigest(),
        canary_hits=tuple(hits),
        text_hits=tuple(own),
        overlap={task: (n, alike[task]) for task, n in asked.items()},
        image_ids=frozenset(ids),
        groups=frozenset(groups - {""}),
        n_without_source=nameless,
        n_without_group=groupless,
        outputs=tuple(outputs.values()),
    )
