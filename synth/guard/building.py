"""Building the guard's index of a benchmark. What cannot be read in full is not indexed at all."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from synth import images
from synth.contracts import BenchmarkData
from synth.errors import GuardError, ImageError
from synth.guard import bank, expected, features, panels, pdq
from synth.guard.drawings import is_drawing
from synth.guard.embeddings import Network
from synth.guard.index import ALIKE, Embedded, Expected, GuardIndex, merkle_root, pixel_digest, sealed
from synth.guard.options import MIN_QUALITY, THRESHOLDS
from synth.guard.reading import benchmark_images, folder_images
from synth.guard.text import build_text
from synth.types import Rgb


def build_index(
    benchmark: BenchmarkData | Path,
    wanted: Expected | None = None,
    *,
    local: bool = True,
    networks: Sequence[Network] = (),
) -> GuardIndex:
    """Index every image of a benchmark, or every image below a folder.

    Args:
        benchmark: items with their images, or a folder of images.
        wanted: how much it must hold; goes before the shipped table of known benchmarks.
        local: False leaves out local features, for sources of renders and drawings only. A photograph that is checked
            against such an index is unverifiable.
        networks: optional networks whose descriptors are kept too.

    Raises GuardError when it is empty, shorter or longer than expected, of another revision, or holds an image (or, in
    a folder, a file that may hold one) that cannot be decoded.
    """
    wanted = wanted or Expected()
    if isinstance(benchmark, Path):
        data, entries = BenchmarkData(name=benchmark.name, revision="", items=()), folder_images(benchmark)
    else:
        data, entries = benchmark, benchmark_images(benchmark)
    notes, wanted = _known(data, wanted)
    builder = _Builder(data.name, local, networks)
    for entry, encoded in entries:
        builder.add(entry, encoded)
    n_items = len(builder.names) if isinstance(benchmark, Path) else len(data.items)
    _check(data, len(builder.names), wanted)
    merkle = merkle_root(builder.files)
    index = sealed(
        GuardIndex(
            benchmark=data.name,
            revision=data.revision or wanted.revision or f"content-{merkle[:32]}",
            n_items=n_items,
            expected_items=wanted.items,
            expected_images=wanted.images,
            thresholds=dict(THRESHOLDS),
            names=np.array(builder.names, dtype=np.str_),
            file_sha256=_digests(builder.files),
            pixel_sha256=_digests(builder.pixels),
            quality=np.array(builder.quality, dtype=np.uint8),
            rows=np.concatenate(builder.rows),
            owners=np.array(builder.owners, dtype=np.int32),
            parts=np.array(builder.parts, dtype=np.str_),
            text=build_text(data.items, bytes.fromhex(merkle[:32])),
            bank=bank.build(builder.local),
            local=local,
            embedded=builder.embedded(),
            notes=notes,
        )
    )
    index.check_counts(wanted)
    return index


def _known(data: BenchmarkData, wanted: Expected) -> tuple[tuple[str, ...], Expected]:
    """What the table of known benchmarks says of a copy: notes for the certificate, and the count of its items."""
    row = expected.known(data)
    if row is None or not data.items:
        return (), wanted
    expected.check_revision(data, row)
    try:
        missing = expected.check_known(data, row)
    except GuardError:
        if wanted.items is None:
            raise
        return (f"only {wanted.items} items of {row.name}, as its user stated",), wanted
    notes = (f"of {row.name} the index lacks {' and '.join(missing)}",) if missing else ()
    return notes, replace(wanted, items=wanted.items or len(data.items))


class _Builder:
    """Collects the columns; the same pixels are hashed once."""

    def __init__(self, benchmark: str, local: bool, networks: Sequence[Network]) -> None:
        self.benchmark = benchmark
        self._local = local
        self._networks = networks
        self._vectors: dict[str, list[npt.NDArray[np.float32]]] = {network.name: [] for network in networks}
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
        for network in self._networks:
            self._vectors[network.name].append(network.describe(rgb))
        if pixels in self._known:
            self.quality.append(self.quality[self._known[pixels]])
            self.local.append(None)
            return
        self._known[pixels] = owner
        for panel in panels.frames(pdq.working_luma(rgb)):
            packed, quality = pdq.hashes(panel.luma)
            if panel.name == panels.WHOLE:
                self.quality.append(quality)
                self.local.append(self._features(rgb, packed[:1], quality) if self._local else None)
            elif quality < MIN_QUALITY:
                continue
            self.rows.append(packed[:1])
            self.owners.append(owner)
            self.parts.append(panel.name)

    def embedded(self) -> dict[str, Embedded]:
        """The networks' descriptors of all images."""
        return {
            network.name: Embedded(identity=network.identity, vectors=np.stack(self._vectors[network.name]))
            for network in self._networks
        }

    def _features(self, rgb: Rgb, whole: pdq.Hashes, quality: int) -> bank.Entry:
        """Key points and thumbnail; None for a drawing, and where an image alike has them already."""
        if quality >= MIN_QUALITY:
            if self._described and pdq.distances(whole, np.concatenate(self._described)).min() <= ALIKE:
                return None
            self._described.append(whole)
        picture = features.canonical(rgb)
        return None if is_drawing(picture) else (features.extract(picture), bank.thumbnail(picture))


def _check(data: BenchmarkData, n_images: int, wanted: Expected) -> None:
    if not n_images:
        raise GuardError(
            "the benchmark holds no image", where=data.name, fix="an empty index would call everything clean"
        )
    if wanted.revision is not None and data.revision not in ("", wanted.revision):
        raise GuardError(
            f"revision {data.revision!r} was read, {wanted.revision!r} is expected",
            where=data.name,
            fix="fetch the pinned revision, or pin the one you have",
        )


def _digests(values: Sequence[bytes]) -> npt.NDArray[np.uint8]:
    return np.frombuffer(b"".join(values), dtype=np.uint8).reshape(-1, 32)
