"""What models said, kept on disk by content: image, backend's identity, member.

One file an entry: a JSON head and the raw arrays, compressed by zstd with its checksum. Depth stays float32, since a
coarser grid would make ties where the model had none; masks are packed to bits. Files appear under their name only when
complete; one that cannot be read is counted, and computed again. A cache that cannot be written to is counted too, and
the run goes on without it.
"""

from __future__ import annotations

import json
import os
import struct
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import zstandard

from synth.config import digest
from synth.types import Box, DepthMap, JsonValue, Loss, Mask, Matches, MetricDepth, Region, Regions, RelativeDepth

FORMAT = 2
_LEVEL = 3
_LARGEST = 2_000_000_000
Vector: TypeAlias = npt.NDArray[np.float32]
"""One dimension."""
EntryT = TypeVar("EntryT")
_Arrays = list[npt.NDArray[np.generic]]


@dataclass(frozen=True, kw_only=True)
class CacheStats:
    """What a cache has done so far."""

    hits: int
    misses: int
    corrupt: int
    """Entries that could not be read; they count as misses too."""
    unwritten: int
    """Entries that could not be stored."""
    trouble: str
    """The first reason why one could not be read or stored, or ""."""


class Cache:
    """A folder of entries. Several processes may share one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._hits = self._misses = self._corrupt = self._unwritten = 0
        self._trouble = ""

    def stats(self) -> CacheStats:
        """Counters since the start."""
        return CacheStats(
            hits=self._hits,
            misses=self._misses,
            corrupt=self._corrupt,
            unwritten=self._unwritten,
            trouble=self._trouble,
        )

    def get(self, key: str) -> DepthMap | Regions | None:
        """The entry, or None where there is none that can be read."""
        return self._get(key, decode)

    def get_vector(self, key: str) -> Vector | None:
        """The same for an entry of `put_vector`."""
        return self._get(key, decode_vector)

    def get_matches(self, key: str) -> Matches | None:
        """The same for an entry of `put_matches`."""
        return self._get(key, decode_matches)

    def put(self, key: str, value: DepthMap | Regions) -> None:
        """Store an entry, whole or not at all."""
        self._put(key, encode(value, key))

    def put_matches(self, key: str, value: Matches) -> None:
        """The same for the matches of two pictures."""
        self._put(key, encode_matches(value, key))

    def put_vector(self, key: str, value: Vector) -> None:
        """The same for a vector."""
        self._put(key, encode_vector(value, key))

    def _get(self, key: str, read: Callable[[bytes, str], EntryT]) -> EntryT | None:
        path = self._path(key)
        try:
            found = read(path.read_bytes(), key)
        except (FileNotFoundError, NotADirectoryError):
            self._misses += 1
            return None
        except (OSError, ValueError, KeyError, TypeError, struct.error, zstandard.ZstdError) as error:
            self._misses += 1
            self._corrupt += 1
            self._note(f"{path.name}: {error}")
            return None
        self._hits += 1
        return found

    def _put(self, key: str, data: bytes) -> None:
        path = self._path(key)
        temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # No fsync: an entry torn by a power cut fails its checksum and is made again.
            temporary.write_bytes(data)
            os.replace(temporary, path)  # noqa: PTH105 - named as the crash rules name it
        except OSError as error:
            self._unwritten += 1
            self._note(str(error))
            with suppress(OSError):
                temporary.unlink()

    def _path(self, key: str) -> Path:
        return self._folder / key[:2] / f"{key}.zst"

    def _note(self, trouble: str) -> None:
        self._trouble = self._trouble or trouble


def key_of(image_id: str, backend: str, version: int, identity: str, member: str) -> str:
    """Name of an entry: everything that the result depends on."""
    return digest(FORMAT, image_id, backend, version, identity, member)


def encode(value: DepthMap | Regions, key: str) -> bytes:
    """An entry's bytes; the same value under the same key gives the same bytes."""
    head, arrays = _regions_out(value) if isinstance(value, Regions) else _depth_out(value)
    return _packed(head, arrays, key)


def encode_vector(value: Vector, key: str) -> bytes:
    """The same for the entry of a vector."""
    return _packed({"kind": "vector", "length": len(value)}, [value.astype("<f4")], key)


def encode_matches(value: Matches, key: str) -> bytes:
    """The same for matches; every number keeps its 64 bits."""
    geometry = {"homography": value.homography, "fundamental": value.fundamental}
    known = {name: matrix for name, matrix in geometry.items() if matrix is not None}
    head: dict[str, JsonValue] = {
        "kind": "matches",
        "backend": value.backend,
        "member": value.member,
        "length": len(value.scores),
        "geometry": list(known),
    }
    return _packed(head, [a.astype("<f8") for a in (value.here, value.there, value.scores, *known.values())], key)


def _packed(head: Mapping[str, JsonValue], arrays: _Arrays, key: str) -> bytes:
    text = json.dumps({**head, "key": key}, sort_keys=True, separators=(",", ":")).encode()
    raw = b"".join([struct.pack("<I", len(text)), text, *(array.tobytes() for array in arrays)])
    return zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True).compress(raw)


def decode(data: bytes, key: str) -> DepthMap | Regions:
    """The value of the bytes of that key's entry.

    Raises ValueError, KeyError, TypeError, struct.error or ZstdError for damaged bytes and those of another entry.
    """
    head, body = _opened(data, key)
    return _regions_in(head, body) if head["kind"] == "regions" else _depth_in(head, body)


def decode_vector(data: bytes, key: str) -> Vector:
    """The same for the entry of a vector."""
    head, body = _opened(data, key)
    if head["kind"] != "vector" or len(body) != 4 * _number(head["length"]):
        raise ValueError("not a vector, or not a whole one")
    return np.frombuffer(body, dtype="<f4").astype(np.float32)


def decode_matches(data: bytes, key: str) -> Matches:
    """The same for the entry of matches."""
    head, body = _opened(data, key)
    if head["kind"] != "matches":
        raise ValueError("not matches")
    n, names = int(_number(head["length"])), [str(name) for name in _list(head["geometry"])]
    values = np.frombuffer(body, dtype="<f8").astype(np.float64)
    here, there, scores, *matrices = np.split(values, np.cumsum([2 * n, 2 * n, n, *[9] * len(names)])[:-1])
    geometry = {name: matrix.reshape(3, 3) for name, matrix in zip(names, matrices, strict=True)}
    return Matches(
        here=here.reshape(n, 2),
        there=there.reshape(n, 2),
        scores=scores.reshape(n),
        backend=str(head["backend"]),
        member=str(head["member"]),
        homography=geometry.get("homography"),
        fundamental=geometry.get("fundamental"),
    )


def _opened(data: bytes, key: str) -> tuple[Mapping[str, JsonValue], memoryview]:
    raw = zstandard.ZstdDecompressor().decompress(data, max_output_size=_LARGEST)
    (length,) = struct.unpack_from("<I", raw)
    head = json.loads(raw[4 : 4 + length])
    if head["key"] != key:
        raise ValueError(f"the entry of {head['key']} under another name")
    return head, memoryview(raw)[4 + length :]


def _depth_out(depth: DepthMap) -> tuple[dict[str, JsonValue], _Arrays]:
    metric = isinstance(depth, MetricDepth)
    values = depth.metres if isinstance(depth, MetricDepth) else depth.inverse
    head: dict[str, JsonValue] = {
        "kind": "metric" if metric else "relative",
        "backend": depth.backend,
        "shape": list(values.shape),
    }
    return head, [_planes(values), np.packbits(depth.valid)]


def _depth_in(head: Mapping[str, JsonValue], body: memoryview) -> DepthMap:
    shape = _shape(head["shape"])
    count = shape[0] * shape[1]
    planes = np.frombuffer(body[: 4 * count], dtype=np.uint8).reshape(4, count)
    values = np.ascontiguousarray(planes.T).view(np.dtype("<f4")).reshape(shape).astype(np.float32)
    valid = _unpacked(body[4 * count :], shape)
    backend = str(head["backend"])
    if head["kind"] == "metric":
        return MetricDepth(metres=values, valid=valid, backend=backend)
    if head["kind"] == "relative":
        return RelativeDepth(inverse=values, valid=valid, backend=backend)
    raise ValueError(f"unknown kind {head['kind']!r}")


def _planes(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint8]:
    """The four bytes of each float apart: the high ones hardly change from pixel to pixel and compress well."""
    return np.ascontiguousarray(values.astype("<f4").reshape(-1, 1).view(np.uint8).T)


def _regions_out(regions: Regions) -> tuple[dict[str, JsonValue], _Arrays]:
    items: list[JsonValue] = []
    arrays: _Arrays = []
    for region in regions.items:
        items.append(
            {
                "label": region.label,
                "box": list(region.box),
                "score": region.score,
                "attributes": dict(region.attributes),
                "crowd": region.crowd,
                "mask": None if region.mask is None else list(region.mask.shape),
            }
        )
        if region.mask is not None:
            arrays.append(np.packbits(region.mask))
    head: dict[str, JsonValue] = {
        "kind": "regions",
        "backend": regions.backend,
        "complete": regions.complete,
        "vocabulary": list(regions.vocabulary),
        "losses": [[loss.reason, loss.count, loss.example] for loss in regions.losses],
        "items": items,
    }
    return head, arrays


def _regions_in(head: Mapping[str, JsonValue], body: memoryview) -> Regions:
    items = []
    start = 0
    for item in _list(head["items"]):
        fields = _mapping(item)
        mask = None
        if fields["mask"] is not None:
            shape = _shape(fields["mask"])
            size = -(-shape[0] * shape[1] // 8)
            mask = _unpacked(body[start : start + size], shape)
            start += size
        attributes = {key: str(text) for key, text in _mapping(fields["attributes"]).items()}
        items.append(
            Region(
                label=str(fields["label"]),
                box=_box(fields["box"]),
                score=_number(fields["score"]),
                mask=mask,
                attributes=attributes,
                crowd=bool(fields["crowd"]),
            )
        )
    return Regions(
        items=tuple(items),
        complete=bool(head["complete"]),
        backend=str(head["backend"]),
        vocabulary=tuple(str(label) for label in _list(head["vocabulary"])),
        losses=tuple(_loss(loss) for loss in _list(head["losses"])),
    )


def _unpacked(body: memoryview, shape: tuple[int, int]) -> Mask:
    bits = np.unpackbits(np.frombuffer(body, dtype=np.uint8), count=shape[0] * shape[1])
    return bits.reshape(shape).astype(np.bool_)


def _list(value: JsonValue) -> Sequence[JsonValue]:
    if not isinstance(value, list):
        raise ValueError(f"expected a list, found {value!r}")
    return value


def _mapping(value: JsonValue) -> Mapping[str, JsonValue]:
    if not isinstance(value, dict):
        raise ValueError(f"expected an object, found {value!r}")
    return value


def _loss(value: JsonValue) -> Loss:
    reason, count, example = _list(value)
    return Loss(reason=str(reason), count=int(_number(count)), example=str(example))


def _number(value: JsonValue) -> float:
    if not isinstance(value, int | float):
        raise ValueError(f"expected a number, found {value!r}")
    return float(value)


def _box(value: JsonValue) -> Box:
    x1, y1, x2, y2 = (_number(part) for part in _list(value))
    return x1, y1, x2, y2


def _shape(value: JsonValue) -> tuple[int, int]:
    height, width = (int(_number(part)) for part in _list(value))
    return height, width
