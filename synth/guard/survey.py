"""One pass over a finished dataset: its manifest, canaries in texts and images, prompts that a benchmark uses too."""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from PIL import Image

from synth import images
from synth.errors import ImageError
from synth.guard.cascade import Content, Guard, GuardVerdict
from synth.guard.index import GuardIndex, normalise_question, pixel_digest, question_digest
from synth.types import Box, Rgb

BLINK_SUBTASKS = (
    "Art_Style",
    "Counting",
    "Forensic_Detection",
    "Functional_Correspondence",
    "IQ_Test",
    "Jigsaw",
    "Multi-view_Reasoning",
    "Object_Localization",
    "Relative_Depth",
    "Relative_Reflectance",
    "Semantic_Correspondence",
    "Spatial_Relation",
    "Visual_Correspondence",
    "Visual_Similarity",
)
CANARIES = ("canary GUID", "(val|test)_<subtask>_N")
"""What is searched for, as the certificate names it."""

_PATTERN = re.compile(rf"canary guid|(?<![a-z])(?:val|test)_(?:{'|'.join(BLINK_SUBTASKS)})_\d+", re.IGNORECASE)
_BYTES_PATTERN = re.compile(_PATTERN.pattern.encode(), re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class CertifiedRow:
    """One sample of a dataset, as the guard needs it."""

    sample_id: str
    task: str
    images: tuple[bytes, ...]
    """Encoded, marked, as they are in the dataset."""
    question: str
    prompt: str = ""
    texts: tuple[str, ...] = ()
    """Every other text field: choices, completion, provenance, names."""
    image_ids: tuple[str, ...] = ()
    """Ids of the source images."""
    group: str = ""
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
    """sha256 of the sorted lines 'sample_id image_pixel_sha256 question_sha256', each ended by a newline; a sample's
    several images are joined by "+", the question is hashed as it is in UTF-8."""
    canary_hits: tuple[str, ...]
    overlap: Mapping[str, tuple[int, int]]
    """Task -> (samples, of which the question or prompt is one of the benchmark's)."""
    image_ids: frozenset[str]
    groups: frozenset[str]
    n_without_source: int
    """Samples that name no source image."""
    outputs: tuple[GuardVerdict, ...] = field(default=())
    """The guard's word on each unique image as rendered, where it was asked."""


def survey(rows: Iterable[CertifiedRow], index: GuardIndex | None, guard: Guard | None = None) -> Survey:
    """Read every row once. With `guard`, each unique image goes through it as the final check, own marks masked.

    Raises ImageError for an image of the dataset that cannot be decoded.
    """
    known = frozenset() if index is None else frozenset(row.tobytes() for row in index.questions)
    lines: list[str] = []
    hits: list[str] = []
    overlap: dict[str, tuple[int, int]] = {}
    outputs: dict[str, GuardVerdict] = {}
    pixels: set[str] = set()
    ids: set[str] = set()
    groups: set[str] = set()
    digests: dict[str, str] = {}
    nameless = 0
    for row in rows:
        shas = []
        for number, data in enumerate(row.images):
            image_id = images.image_id(data)
            if image_id not in digests:
                rgb = _decoded(row, number)
                digests[image_id] = pixel_digest(rgb).hex()
                hits += [f"{row.sample_id}: image {number + 1}: {found}" for found in canaries_in_image(data)]
                if guard is not None:
                    outputs[image_id] = guard.check(data, rgb, row.boxes(number), row.content)
            shas.append(digests[image_id])
        pixels.update(shas)
        lines.append(f"{row.sample_id} {'+'.join(shas)} {hashlib.sha256(row.question.encode()).hexdigest()}\n")
        texts = (row.sample_id, row.question, row.prompt, *row.texts)
        hits += [f"{row.sample_id}: {found}" for text in texts for found in canaries_in_text(text)]
        same = any(normalise_question(text) and question_digest(text) in known for text in (row.question, row.prompt))
        n, equal = overlap.get(row.task, (0, 0))
        overlap[row.task] = (n + 1, equal + same)
        ids.update(row.image_ids)
        nameless += not row.image_ids
        groups.add(row.group)
    return Survey(
        n_samples=len(lines),
        n_images_unique=len(pixels),
        manifest_sha256=hashlib.sha256("".join(sorted(lines)).encode()).hexdigest(),
        canary_hits=tuple(hits),
        overlap=overlap,
        image_ids=frozenset(ids),
        groups=frozenset(groups - {""}),
        n_without_source=nameless,
        outputs=tuple(outputs.values()),
    )


def canaries_in_text(text: str) -> Iterator[str]:
    """Every canary in a text."""
    return (match.group() for match in _PATTERN.finditer(text))


def canaries_in_image(data: bytes) -> Iterator[str]:
    """Every canary in an image file: uncompressed metadata (EXIF, XMP, comments, tEXt), and compressed PNG text."""
    yield from (match.group().decode() for match in _BYTES_PATTERN.finditer(data))
    if b"zTXt" in data or b"iTXt" in data:
        with Image.open(io.BytesIO(data), formats=images.FORMATS) as image:
            # Text may follow the pixels, so it is known only once they are read.
            image.load()
            for text in getattr(image, "text", {}).values():
                yield from canaries_in_text(text)


def _decoded(row: CertifiedRow, number: int) -> Rgb:
    try:
        return images.decode(row.images[number], min_side=1)
    except ImageError as error:
        raise ImageError(
            error.message, where=f"{row.sample_id}: image {number + 1}", fix="make the dataset anew"
        ) from None
