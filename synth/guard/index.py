"""What the guard knows about a benchmark: digests, perceptual hashes and local features of every image.

An index that is empty, short, or lacks an image that could not be decoded would match nothing and look clean, so none
is ever built, and a damaged file is never loaded.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from synth.errors import GuardError
from synth.files import write_bytes
from synth.guard import bank, pdq
from synth.guard.bank import Bank
from synth.guard.options import THRESHOLDS
from synth.guard.text import TextIndex
from synth.types import JsonValue, Rgb

HASH = f"pdq/{pdq.CANONICAL_SIDE}/frames-1"
ALGORITHM = f"{HASH}+{bank.ALGORITHM}"
"""Changes whenever the same image would get other hashes or features: such an index must be built anew."""

ALIKE = 45
"""Distance of whole images up to which the features of one stand for both: benchmarks show a picture again with other
marks."""

_FORMAT = 3
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
Mask1 = npt.NDArray[np.bool_]
_ARRAYS: Mapping[str, tuple[type[np.generic], int]] = {
    "names": (np.str_, 1),
    "file_sha256": (np.uint8, 2),
    "pixel_sha256": (np.uint8, 2),
    "quality": (np.uint8, 1),
    "rows": (np.uint8, 2),
    "owners": (np.int32, 1),
    "parts": (np.str_, 1),
}
_TEXT: Mapping[str, tuple[type[np.generic], int]] = {
    "salt": (np.uint8, 1),
    "questions": (np.uint64, 1),
    "own": (np.uint8, 1),
    "boilerplate": (np.uint64, 1),
    "residuals": (np.uint64, 1),
    "grams": (np.uint64, 1),
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
class Embedded:
    """One descriptor an image."""

    identity: str
    """Names the network: kind, preprocessing and the sha256 of its weights."""
    vectors: npt.NDArray[np.float32]
    """(N, D), unit length."""


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
    text: TextIndex
    """What is the benchmark's own in its questions."""
    bank: Bank
    """Local features of the N images; none for drawings, and for images alike to an earlier one."""
    local: bool = True
    """False where it was built for renders and drawings only: no photograph can be checked against it."""
    embedded: Mapping[str, Embedded] = field(default_factory=dict)
    """Descriptors by optional networks, by the name of the stage."""
    notes: tuple[str, ...] = ()
    """What it does not hold, in words for the certificate."""
    sha256: str = field(default="")

    @property
    def n_images(self) -> int:
        """N."""
        return len(self.names)

    def check_counts(self, wanted: Expected) -> None:
        """Raises GuardError where it holds more or less than that."""
        pairs = (("items", self.n_items, wanted.items), ("images", self.n_images, wanted.images))
        for what, found, number in pairs:
            if number is not None and found != number:
                fix = "load the benchmark in full"
                raise GuardError(f"{found} {what} were read, {number} are expected", where=self.benchmark, fix=fix)

    def alike(self, a: str, b: str) -> bool:
        """True where two names stand for one picture: benchmarks ask several questions about an image, with marks."""
        return a == b or self.distance(self._of(a), b) <= THRESHOLDS["photograph"]

    def distance(self, hashes: pdq.Hashes, name: str) -> int:
        """Bits between the nearest of these (K, 32) hashes and the image of that name; 256 where either has none."""
        return int(pdq.distances(hashes, self._of(name)).min(initial=256))

    def described(self, name: str) -> tuple[int, ...]:
        """Rows whose local features stand for the image of this name: its own, or those of images alike to it."""
        has = np.diff(self.bank.starts) > 0
        own = np.flatnonzero(has & self._same(name))
        if len(own):
            return tuple(own.tolist())
        rows = np.flatnonzero(has[self.owners] & (self.parts == "whole"))
        near = pdq.distances(self._of(name), self.rows[rows]).min(axis=0, initial=256) <= ALIKE
        return tuple(sorted(set(self.owners[rows[near]].tolist())))

    def _of(self, name: str) -> pdq.Hashes:
        """(K, 32) hashes of the image of this name, or of the one with the same pixels that was hashed in its place."""
        return self.rows[self._same(name)[self.owners]]

    def _same(self, name: str) -> Mask1:
        """(N,) which images have the pixels of the one of this name."""
        here = np.flatnonzero(self.names == name)
        if not len(here):
            return np.zeros(len(self.names), dtype=bool)
        same: Mask1 = (self.pixel_sha256 == self.pixel_sha256[here[0]]).all(axis=1)
        return same


def pixel_digest(rgb: Rgb) -> bytes:
    """sha256 of "WIDTHxHEIGHT:" and the raw RGB bytes, rows from the top. Comparable within one JPEG decoder only."""
    header = f"{rgb.shape[1]}x{rgb.shape[0]}:".encode()
    return hashlib.sha256(header + np.ascontiguousarray(rgb).tobytes()).digest()


def merkle_root(leaves: Sequence[bytes]) -> str:
    """Root of a binary sha256 tree over the sorted leaves, hex; an odd node moves up unchanged."""
    level = sorted(leaves)
    while len(level) > 1:
        pairs = [hashlib.sha256(b"".join(level[i : i + 2])).digest() for i in range(0, len(level) - 1, 2)]
        level = pairs + (level[-1:] if len(level) % 2 else [])
    return level[0].hex() if level else hashlib.sha256(b"").hexdigest()


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
            if algorithm != ALGORITHM or meta.get("format") != _FORMAT:
                raise GuardError(
                    f"made for {algorithm}, this version compares {ALGORITHM} in format {_FORMAT}",
                    where=str(path),
                    fix="build the index again",
                )
            columns, local, text = (_read(archive, part) for part in (_ARRAYS, _BANK, _TEXT))
            nets = {str(name): str(identity) for name, identity in meta["embedded"].items()}
            vectors = _read(archive, {f"by_{name}": (np.float32, 2) for name in nets})
        index = GuardIndex(
            benchmark=str(meta["benchmark"]),
            revision=str(meta["revision"]),
            n_items=int(meta["n_items"]),
            expected_items=_count(meta["expected_items"]),
            expected_images=_count(meta["expected_images"]),
            thresholds={str(key): int(value) for key, value in meta["thresholds"].items()},
            **columns,
            bank=Bank(**local),
            text=TextIndex(**text),
            local=bool(meta["local"]),
            notes=tuple(str(note) for note in meta["notes"]),
            embedded={name: Embedded(identity=nets[name], vectors=vectors[f"by_{name}"]) for name in nets},
        )
    except _READING_ERRORS as error:
        raise _damaged(path, " ".join(str(error).split())) from None
    index = sealed(index)
    if index.sha256 != stored:
        raise _damaged(path, f"its sha256 is {index.sha256}, it says {stored}")
    if index.n_images == 0 or len(index.rows) == 0:
        raise _damaged(path, "it holds no image")
    return index


def sealed(index: GuardIndex) -> GuardIndex:
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
        "local": index.local,
        "notes": list(index.notes),
        "embedded": {name: one.identity for name, one in sorted(index.embedded.items())},
    }


def _columns(index: GuardIndex) -> dict[str, npt.NDArray[np.generic]]:
    own = {name: getattr(index, name) for name in _ARRAYS}
    nets: dict[str, npt.NDArray[np.generic]] = {f"by_{name}": one.vectors for name, one in index.embedded.items()}
    parts = ((index.bank, _BANK), (index.text, _TEXT))
    return own | {name: getattr(part, name) for part, names in parts for name in names} | nets


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
