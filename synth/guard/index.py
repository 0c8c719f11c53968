"""What the guard knows about a benchmark: digests, perceptual hashes and local features of every image.

An index that is empty, short, or lacks an image that could not be decoded would match nothing and look clean, so none
is ever built, and a damaged file is never loaded.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import unicodedata
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from synth import images
from synth.errors import GuardError, ImageError
from synth.files import write_bytes
from synth.guard import bank, features, panels, pdq
from synth.guard.bank import Bank
from synth.guard.drawings import is_drawing
from synth.types import BenchmarkData, JsonValue, Rgb

HASH = f"pdq/{pdq.CANONICAL_SIDE}/frames-1"
ALGORITHM = f"{HASH}+{bank.ALGORITHM}"
"""Changes whenever the same image would get other hashes or features: such an index must be built anew."""

THRESHOLDS: Mapping[str, int] = {"photograph": 60, "rendered": 52, "drawing": 31}
"""Hamming distance out of 256 up to which a panel counts as the benchmark's image, by content. Drawings and renders of
one kind share their frame, so unrelated ones are nearer to each other than photographs are. Nearest strangers measured
(tests/benchmarks/bench_guard.py): 82 among 363 photographs and altered copies against 41 others, 54 among 816 views of
408 rendered rooms against each other."""
REVIEW: Mapping[str, int] = {"photograph": 85, "rendered": 60}
"""Distance up to which a clean image is listed as a near miss."""
MIN_QUALITY = 30
ALIKE = 45
"""Distance of whole images up to which the features of one stand for both: benchmarks show a picture again with other
marks."""

_FORMAT = 2
_READING_ERRORS = (
    zipfile.BadZipFile,
    zipfile.LargeZipFile,
    zlib.error,
    OSError,
    EOFError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    NotImplementedError,
    RuntimeError,
)
"""What a damaged archive can raise from numpy, zipfile and zlib."""
_TEXT_SUFFIXES = ("", ".json", ".jsonl", ".md", ".txt", ".csv", ".tsv", ".yaml", ".yml", ".html")
_ARRAYS: Mapping[str, tuple[type[np.generic], int]] = {
    "names": (np.str_, 1),
    "file_sha256": (np.uint8, 2),
    "pixel_sha256": (np.uint8, 2),
    "quality": (np.uint8, 1),
    "rows": (np.uint8, 2),
    "owners": (np.int32, 1),
    "parts": (np.str_, 1),
    "questions": (np.uint8, 2),
    "question_counts": (np.int32, 1),
}
_BANK: Mapping[str, tuple[type[np.generic], int]] = {
    "descriptors": (np.uint8, 2),
    "places": (np.float32, 2),
    "starts": (np.int64, 1),
    "cells": (np.int32, 1),
    "signatures": (np.uint64, 1),
    "mean": (np.float32, 1),
    "axes": (np.float32, 2),
    "words": (np.float32, 3),
    "medians": (np.float32, 1),
    "thumbnails": (np.uint8, 1),
    "sizes": (np.int32, 2),
}


@dataclass(frozen=True, kw_only=True)
class Expected:
    """How much the benchmark must hold; None where nobody has said."""

    items: int | None = None
    images: int | None = None
    revision: str | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class GuardIndex:
    """A benchmark of N images as M hashes. `sha256` covers everything else."""

    benchmark: str
    revision: str
    n_items: int
    expected_items: int | None
    expected_images: int | None
    thresholds: Mapping[str, int]
    """The shipped thresholds when it was built."""
    names: npt.NDArray[np.str_]
    """(N,): item id with "#k" for its k-th image, "clean/…" for an unmarked original, or a path in the folder."""
    file_sha256: npt.NDArray[np.uint8]
    """(N, 32)."""
    pixel_sha256: npt.NDArray[np.uint8]
    """(N, 32), see `pixel_digest`."""
    quality: npt.NDArray[np.uint8]
    """(N,) PDQ quality of the whole image."""
    rows: npt.NDArray[np.uint8]
    """(M, 32) PDQ of the whole images and of what their borders and gutters divide them into."""
    owners: npt.NDArray[np.int32]
    """(M,): row in `names`."""
    parts: npt.NDArray[np.str_]
    """(M,): whole, trimmed, part1 …"""
    questions: npt.NDArray[np.uint8]
    """(P, 32) digests of the normalised questions and prompts."""
    question_counts: npt.NDArray[np.int32]
    """(P,): how many items use it."""
    bank: Bank
    """Local features of the N images; none for drawings, and for images alike to an earlier one."""
    sha256: str = field(default="")

    @property
    def n_images(self) -> int:
        """N."""
        return len(self.names)

    def alike(self, a: str, b: str) -> bool:
        """True where two names stand for one picture: benchmarks ask several questions about an image, with marks."""
        return a == b or bool(pdq.distances(self._of(a), self._of(b)).min(initial=256) <= THRESHOLDS["photograph"])

    def _of(self, name: str) -> pdq.Hashes:
        """(K, 32) hashes of the image of this name, or of the one with the same pixels that was hashed in its place."""
        here = np.flatnonzero(self.names == name)
        same = (self.pixel_sha256 == self.pixel_sha256[here[0]]).all(axis=1) if len(here) else np.zeros(0, dtype=bool)
        return self.rows[np.isin(self.owners, np.flatnonzero(same))]


def pixel_digest(rgb: Rgb) -> bytes:
    """sha256 of "WIDTHxHEIGHT:" and the raw RGB bytes, rows from the top. Comparable within one JPEG decoder only."""
    header = f"{rgb.shape[1]}x{rgb.shape[0]}:".encode()
    return hashlib.sha256(header + np.ascontiguousarray(rgb).tobytes()).digest()


def normalise_question(text: str) -> str:
    """NFKC, casefolded, option letters and punctuation removed, single spaces."""
    plain = unicodedata.normalize("NFKC", text).casefold()
    plain = re.sub(r"\([a-z]\)|^\s*[a-z][.):]\s", " ", plain, flags=re.MULTILINE)
    return " ".join(re.sub(r"[^\w\s]|_", " ", plain).split())


def question_digest(text: str) -> bytes:
    """sha256 of the normalised question."""
    return hashlib.sha256(normalise_question(text).encode()).digest()


def merkle_root(leaves: Sequence[bytes]) -> str:
    """Root of a binary sha256 tree over the sorted leaves, hex; an odd node moves up unchanged."""
    level = sorted(leaves)
    while len(level) > 1:
        pairs = [hashlib.sha256(b"".join(level[i : i + 2])).digest() for i in range(0, len(level) - 1, 2)]
        level = pairs + (level[-1:] if len(level) % 2 else [])
    return level[0].hex() if level else hashlib.sha256(b"").hexdigest()


# ------------------------------------------------------------------------------------------------------------ building


def build_index(benchmark: BenchmarkData | Path, expected: Expected | None = None) -> GuardIndex:
    """Index every image of a benchmark, or every image below a folder.

    Raises GuardError when it is empty, shorter or longer than expected, of another revision, or holds an image (or, in
    a folder, a file that may hold one) that cannot be decoded.
    """
    expected = expected or Expected()
    if isinstance(benchmark, Path):
        name, revision, n_items = benchmark.name, "", None
        entries, texts = folder_images(benchmark), Counter[bytes]()
    else:
        name, revision, n_items = benchmark.name, benchmark.revision, len(benchmark.items)
        entries = benchmark_images(benchmark)
        texts = Counter(d for i in benchmark.items for d in {question_digest(i.question), question_digest(i.prompt)})
    builder = _Builder(name)
    for entry, data in entries:
        builder.add(entry, data)
    _check_counts(name, Expected(items=n_items, images=len(builder.names), revision=revision), expected)
    ordered = sorted(texts.items())
    return _sealed(
        GuardIndex(
            benchmark=name,
            revision=revision or expected.revision or f"content-{merkle_root(builder.files)[:32]}",
            n_items=len(builder.names) if n_items is None else n_items,
            expected_items=expected.items,
            expected_images=expected.images,
            thresholds=dict(THRESHOLDS),
            names=np.array(builder.names, dtype=np.str_),
            file_sha256=_digests(builder.files),
            pixel_sha256=_digests(builder.pixels),
            quality=np.array(builder.quality, dtype=np.uint8),
            rows=np.concatenate(builder.rows),
            owners=np.array(builder.owners, dtype=np.int32),
            parts=np.array(builder.parts, dtype=np.str_),
            questions=_digests([digest for digest, _ in ordered]),
            question_counts=np.array([count for _, count in ordered], dtype=np.int32),
            bank=bank.build(builder.local),
        )
    )


class _Builder:
    """Collects the columns; the same pixels are hashed once."""

    def __init__(self, benchmark: str) -> None:
        self.benchmark = benchmark
        self.names: list[str] = []
        self.files: list[bytes] = []
        self.pixels: list[bytes] = []
        self.quality: list[int] = []
        self.rows: list[pdq.Hashes] = []
        self.owners: list[int] = []
        self.parts: list[str] = []
        self.local: list[bank.Entry] = []
        self._described: list[pdq.Hashes] = []
        self._known: dict[bytes, int] = {}

    def add(self, name: str, data: bytes) -> None:
        try:
            rgb = images.decode(data, min_side=1)
        except ImageError as error:
            raise GuardError(
                f"an image of the benchmark cannot be decoded: {error.message}",
                where=f"{self.benchmark}/{name}",
                fix="fetch the benchmark again; what cannot be read cannot be kept out",
            ) from None
        pixels = pixel_digest(rgb)
        owner = len(self.names)
        self.names.append(name)
        self.files.append(hashlib.sha256(data).digest())
        self.pixels.append(pixels)
        if pixels in self._known:
            self.quality.append(self.quality[self._known[pixels]])
            self.local.append(None)
            return
        self._known[pixels] = owner
        for panel in panels.frames(pdq.working_luma(rgb)):
            packed, quality = pdq.hashes(panel.luma)
            if panel.name == panels.WHOLE:
                self.quality.append(quality)
                self.local.append(self._features(rgb, packed[:1], quality))
            elif quality < MIN_QUALITY:
                continue
            self.rows.append(packed[:1])
            self.owners.append(owner)
            self.parts.append(panel.name)

    def _features(self, rgb: Rgb, whole: pdq.Hashes, quality: int) -> bank.Entry:
        """Key points and thumbnail; None for a drawing, and where an image alike has them already."""
        if quality >= MIN_QUALITY:
            if self._described and pdq.distances(whole, np.concatenate(self._described)).min() <= ALIKE:
                return None
            self._described.append(whole)
        picture = features.canonical(rgb)
        return None if is_drawing(picture) else (features.extract(picture), bank.thumbnail(picture))


def benchmark_images(benchmark: BenchmarkData) -> Iterator[tuple[str, bytes]]:
    """(name in the index, encoded bytes) of every image. Raises GuardError for an item without one."""
    for item in benchmark.items:
        if not item.images:
            raise GuardError(
                "an item of the benchmark has no image",
                where=f"{benchmark.name}/{item.item_id}",
                fix="load the benchmark in full",
            )
        for number, data in enumerate(item.images, start=1):
            yield (item.item_id if len(item.images) == 1 else f"{item.item_id}#{number}"), data
    for name, data in benchmark.clean_images.items():
        yield f"clean/{name}", data


def folder_images(folder: Path) -> Iterator[tuple[str, bytes]]:
    """(path, encoded bytes) of every image below a folder. Raises GuardError for a file that may hold others."""
    if not folder.is_dir():
        raise GuardError("no such folder", where=str(folder), fix="give the folder that holds the benchmark's images")
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if not path.is_file() or any(part.startswith(".") for part in path.relative_to(folder).parts):
            continue
        suffix = path.suffix.lower()
        if suffix in images.SUFFIXES:
            yield name, path.read_bytes()
        elif suffix not in _TEXT_SUFFIXES:
            raise GuardError(
                f"a file that may hold benchmark images and cannot be read as one: {suffix}",
                where=str(path),
                fix=f"convert it to one of {', '.join(images.SUFFIXES)}, use the benchmark's plug-in, or move it away",
            )


def _check_counts(name: str, read: Expected, expected: Expected) -> None:
    if not read.images:
        raise GuardError("the benchmark holds no image", where=name, fix="an empty index would call everything clean")
    pairs = (("items", read.items, expected.items), ("images", read.images, expected.images))
    for what, found, wanted in pairs:
        if wanted is not None and (found if found is not None else read.images) != wanted:
            raise GuardError(f"{found} {what} were read, {wanted} are expected", where=name, fix="load it in full")
    if expected.revision is not None and read.revision not in ("", expected.revision):
        raise GuardError(
            f"revision {read.revision!r} was read, {expected.revision!r} is expected",
            where=name,
            fix="fetch the pinned revision, or pin the one you have",
        )


def _digests(values: Sequence[bytes]) -> npt.NDArray[np.uint8]:
    return np.frombuffer(b"".join(values), dtype=np.uint8).reshape(-1, 32)


# ------------------------------------------------------------------------------------------------------ file and digest


def save_index(index: GuardIndex, path: Path) -> None:
    """Write one .npz without pickled objects, atomically."""
    buffer = io.BytesIO()
    meta = json.dumps(_meta(index) | {"sha256": index.sha256}, sort_keys=True).encode()
    # Descriptors hardly shrink, and unpacking them would cost seconds in every worker.
    np.savez(buffer, allow_pickle=False, meta=np.frombuffer(meta, dtype=np.uint8), **_columns(index))
    write_bytes(path, buffer.getvalue())


def load_index(path: Path) -> GuardIndex:
    """Read an index and verify its own sha256. Raises GuardError for anything but the file that was written."""
    if not path.is_file():
        raise GuardError("no such guard index", where=str(path), fix="make one: s2p guard index BENCHMARK --out FILE")
    try:
        with np.load(path, allow_pickle=False) as archive:
            meta = json.loads(archive["meta"].tobytes())
            stored, algorithm = str(meta["sha256"]), str(meta["algorithm"])
            if algorithm != ALGORITHM:
                raise GuardError(
                    f"made for {algorithm}, this version compares {ALGORITHM}",
                    where=str(path),
                    fix="build the index again",
                )
            columns, local = _read(archive, _ARRAYS), _read(archive, _BANK)
        index = GuardIndex(
            benchmark=str(meta["benchmark"]),
            revision=str(meta["revision"]),
            n_items=int(meta["n_items"]),
            expected_items=_count(meta["expected_items"]),
            expected_images=_count(meta["expected_images"]),
            thresholds={str(key): int(value) for key, value in meta["thresholds"].items()},
            **columns,
            bank=Bank(**local),
        )
    except _READING_ERRORS as error:
        raise _damaged(path, " ".join(str(error).split())) from None
    index = _sealed(index)
    if index.sha256 != stored:
        raise _damaged(path, f"its sha256 is {index.sha256}, it says {stored}")
    if index.n_images == 0 or len(index.rows) == 0:
        raise _damaged(path, "it holds no image")
    return index


def _sealed(index: GuardIndex) -> GuardIndex:
    """The index with its digest, its arrays read-only."""
    digest = hashlib.sha256(json.dumps(_meta(index), sort_keys=True).encode())
    for name, column in _columns(index).items():
        column.setflags(write=False)
        content = "\n".join(column.tolist()).encode() if column.dtype.kind == "U" else column.tobytes()
        digest.update(f"\x1f{name}{column.shape}".encode())
        digest.update(content)
    return replace(index, sha256=digest.hexdigest())


def _meta(index: GuardIndex) -> dict[str, JsonValue]:
    return {
        "format": _FORMAT,
        "algorithm": ALGORITHM,
        "benchmark": index.benchmark,
        "revision": index.revision,
        "n_items": index.n_items,
        "expected_items": index.expected_items,
        "expected_images": index.expected_images,
        "thresholds": dict(index.thresholds),
    }


def _columns(index: GuardIndex) -> dict[str, npt.NDArray[np.generic]]:
    own = {name: getattr(index, name) for name in _ARRAYS}
    return own | {name: getattr(index.bank, name) for name in _BANK}


def _read(
    archive: Mapping[str, npt.NDArray[Any]], expected: Mapping[str, tuple[type[np.generic], int]]
) -> dict[str, Any]:
    columns = {name: archive[name] for name in expected}
    for name, (kind, dimensions) in expected.items():
        if not np.issubdtype(columns[name].dtype, kind) or columns[name].ndim != dimensions:
            raise ValueError(f"column {name} is {columns[name].dtype} with {columns[name].ndim} dimensions")
    return columns


def _count(value: object) -> int | None:
    return None if value is None else int(str(value))


def _damaged(path: Path, found: str) -> GuardError:
    return GuardError(f"not an intact guard index: {found}", where=str(path), fix="build it again from the benchmark")
