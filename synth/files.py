"""Files that are either whole or absent: temp name in the same folder, fsync, rename, fsync of the folder."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from synth.types import JsonValue


@contextmanager
def atomic(path: Path) -> Iterator[IO[bytes]]:
    """Open a binary file that appears under `path` only when the block ends without an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as handle:
            yield handle
            handle.flush()
            os.fsync(handle.fileno())
        temporary.replace(path)
        sync_folder(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def clear_temporary(folder: Path) -> None:
    """Remove what killed writers left in a folder. Only for who holds the folder's lock."""
    for path in folder.glob(".*.tmp"):
        if path.is_file():
            path.unlink()


def sync_folder(folder: Path) -> None:
    """Make a rename in the folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file atomically."""
    with atomic(path) as handle:
        handle.write(data)


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text atomically."""
    write_bytes(path, text.encode("utf-8"))


def write_json(path: Path, value: JsonValue) -> None:
    """Write indented JSON atomically; keys keep their order."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def sha256_file(path: Path) -> str:
    """sha256 of a file, hex."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()
