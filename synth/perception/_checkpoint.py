"""What the two transformers plug-ins share: finding a checkpoint, naming it by its content, and refusing half a model.

Only safetensors are read and no code from a checkpoint is run, whatever it asks for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal, Protocol

from pydantic import Field

from synth.errors import BackendError
from synth.types import PluginOptions

_PATTERNS = ["*.json", "*.safetensors"]
_DOWNLOADS = "models"
_NEVER_READ = "mask_token"  # used in pre-training only, and lacking in many published checkpoints


class CheckpointOptions(PluginOptions):
    """Which checkpoint, and how it is run."""

    path: str
    """A local folder, or a model id of the hub."""
    revision: str | None = None
    """Commit, tag or branch of the hub; the newest where it is not given."""
    size: int | None = Field(default=None, ge=32)
    """Shorter edge of the model's input, px; the checkpoint's own where it is not given. Changes the result."""
    device: str = "auto"
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    batch_size: int = Field(default=1, ge=1)
    """On a CPU more than 1 gains nothing. The last bits of a result depend on it."""


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A checkpoint on this machine."""

    folder: Path
    label: str
    """Its path or id as the user wrote it."""
    sha256: str
    """Over its configuration and weights."""


class Module(Protocol):
    """The little of a torch module that is used."""

    def named_parameters(self) -> Iterable[tuple[str, object]]: ...


def locate(options: CheckpointOptions, where: str, default: str) -> Checkpoint:
    """The checkpoint's folder; one of the hub is fetched unless it is here. Raises BackendError with how to get it."""
    local = Path(options.path).expanduser()
    folder = local if local.is_dir() else _from_hub(options, where, default)
    if not (folder / "config.json").is_file() or not list(folder.glob("*.safetensors")):
        raise BackendError(
            "a checkpoint folder holds config.json and *.safetensors, this one does not",
            where=str(folder),
            fix=advice(options.path, where, default),
        )
    return Checkpoint(folder=folder, label=options.path, sha256=_sha256(folder))


def identity(options: CheckpointOptions, where: str, default: str, *more: str) -> str:
    """Content of the checkpoint and every option that changes a result."""
    checkpoint = locate(options, where, default)
    size = "own" if options.size is None else str(options.size)
    parts = (f"size={size}", options.dtype, f"batch={options.batch_size}", *more)
    return f"transformers:{Path(options.path).name}@{checkpoint.sha256[:12]}:{':'.join(parts)}"


def advice(path: str, where: str, default: str) -> str:
    """The two commands that bring a checkpoint to this machine; `default` is the plug-in's own model."""
    repo, folder = (default, path) if _is_local(path) else (path, f"{_DOWNLOADS}/{Path(path).name}")
    return f"hf download {repo} --local-dir {folder}, then --set {where}.path={folder}"


def _is_local(path: str) -> bool:
    """Whether the user means a folder of this machine; a hub's id has one slash and no folder of ours before it."""
    parent = Path(path).parent
    return path.startswith((".", "/", "~")) or path.count("/") != 1 or str(parent) == _DOWNLOADS or parent.is_dir()


def refuse_gaps(model: Module, missing: Iterable[str], mismatched: Iterable[object], checkpoint: Checkpoint) -> None:
    """Raise BackendError where weights are lacking: transformers would fill them with random numbers and go on."""
    parameters = {name for name, _ in model.named_parameters()}
    lacking = sorted(name for name in missing if name in parameters and not name.endswith(_NEVER_READ))
    odd = [str(key) for key in mismatched]
    if lacking or odd:
        raise BackendError(
            f"{len(lacking)} weights are missing and {len(odd)} have another shape, e.g. {(lacking + odd)[0]}",
            where=str(checkpoint.folder),
            fix="the checkpoint is damaged or made for another kind of model",
        )


def device_of(wanted: str) -> str:
    """The device to run on: `auto` takes an accelerator where torch finds one."""
    import torch

    if wanted != "auto":
        return wanted
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def input_size(own: Mapping[str, int | None], shorter: int | None) -> dict[str, int] | None:
    """An image processor's size with another shorter edge, or None to leave it as it is."""
    if shorter is None:
        return None
    if own.get("shortest_edge"):
        longest = own.get("longest_edge")
        return {"shortest_edge": shorter} | ({"longest_edge": max(longest, shorter)} if longest else {})
    return {"height": shorter, "width": shorter}


def _from_hub(options: CheckpointOptions, where: str, default: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError

    fix = advice(options.path, where, default)
    if _is_local(options.path):
        raise BackendError(f"no checkpoint folder {options.path!r}", where=f"{where}.path", fix=fix)
    try:
        return Path(snapshot_download(options.path, revision=options.revision, allow_patterns=_PATTERNS))
    except (OSError, HFValidationError) as error:
        reason = " ".join(str(error).split())[:160]
        raise BackendError(
            f"{options.path!r} is not a folder here, and the hub did not give it ({reason} …)",
            where=f"{where}.path",
            fix=fix,
        ) from None


def _sha256(folder: Path) -> str:
    files = sorted([*folder.glob("*.safetensors"), folder / "config.json", folder / "preprocessor_config.json"])
    present = [file for file in files if file.is_file()]
    return _hashed(tuple((file, file.stat().st_mtime_ns, file.stat().st_size) for file in present))


@lru_cache(maxsize=16)
def _hashed(files: tuple[tuple[Path, int, int], ...]) -> str:
    total = hashlib.sha256()
    for path, _, _ in files:
        with path.open("rb") as file:
            total.update(path.name.encode() + hashlib.file_digest(file, "sha256").digest())
    return total.hexdigest()
