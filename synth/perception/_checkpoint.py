"""What the transformers plug-ins share: finding a checkpoint, naming it by its content, loading it, running it.

Only safetensors are read and no code from a checkpoint is run, whatever it asks for. A photo goes to the device as
bytes and is resized and normalised there, by the checkpoint's own processor.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar

from pydantic import Field

from synth.errors import BackendError
from synth.types import Frame, JsonValue, PluginOptions, Rgb

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, ProcessorMixin

ResultT = TypeVar("ResultT")
_PATTERNS = ["*.json", "*.safetensors", "*.txt"]
_DOWNLOADS = "models"
CONFIG = "config.json"
_CONTENT = (
    "*.safetensors",
    "config.json",
    "open_clip_config.json",
    "preprocessor_config.json",
    "processor_config.json",
    "tokenizer*.json",
    "vocab.*",
    "merges.txt",
)
"""Files that change a result."""
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


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """A model on its device, and what prepares its input."""

    model: PreTrainedModel
    processor: ProcessorMixin
    """An image processor, or one with a tokenizer beside it."""
    device: str


def locate(options: CheckpointOptions, where: str, default: str, config: str = CONFIG) -> Checkpoint:
    """The checkpoint's folder; one of the hub is fetched unless it is here. Raises BackendError with how to get it."""
    local = Path(options.path).expanduser()
    folder = local if local.is_dir() else _from_hub(options, where, default)
    if not (folder / config).is_file() or not list(folder.glob("*.safetensors")):
        raise BackendError(
            f"a checkpoint folder holds {config} and *.safetensors, this one does not",
            where=str(folder),
            fix=advice(options.path, where, default),
        )
    return Checkpoint(folder=folder, label=options.path, sha256=_sha256(folder))


def config_of(checkpoint: Checkpoint) -> Mapping[str, JsonValue]:
    """The checkpoint's config.json. Raises BackendError where it is no JSON object."""
    path = checkpoint.folder / CONFIG
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise BackendError(f"not JSON: {error}", where=str(path), fix="fetch the checkpoint again") from None
    if not isinstance(config, dict):
        raise BackendError("expected a JSON object", where=str(path), fix="fetch the checkpoint again")
    return config


def check_family(checkpoint: Checkpoint, families: Sequence[str], what: str) -> str:
    """The checkpoint's model_type. Raises BackendError where it is none of these families."""
    kind = str(config_of(checkpoint).get("model_type", "unknown"))
    if kind not in families:
        raise BackendError(
            f"model_type {kind} is not {what}", where=str(checkpoint.folder), fix=f"one of {', '.join(families)}"
        )
    return kind


def identity(options: CheckpointOptions, where: str, default: str, *more: str) -> str:
    """Content of the checkpoint and every option that changes a result."""
    return name_of(locate(options, where, default), options, *more)


def name_of(checkpoint: Checkpoint, options: CheckpointOptions, *more: str) -> str:
    """The same for a checkpoint that is found already."""
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


def load(
    checkpoint: Checkpoint,
    options: CheckpointOptions,
    model_class: type[PreTrainedModel],
    processor_class: type[ProcessorMixin],
    what: str,
) -> Loaded:
    """Load a checkpoint with two classes of transformers. Raises BackendError where it is not `what`."""
    device = device_of(options.device)
    try:
        processor = processor_class.from_pretrained(checkpoint.folder, local_files_only=True, trust_remote_code=False)
        model, report = model_class.from_pretrained(
            checkpoint.folder,
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            dtype=options.dtype,
            output_loading_info=True,
        )
    except (OSError, ValueError, RuntimeError) as error:
        raise BackendError(
            f"not {what} that transformers can load: {' '.join(str(error).split())[:300]}",
            where=str(checkpoint.folder),
            fix="name a checkpoint of that kind; if it is one, fetch it again",
        ) from None
    _refuse_gaps(model, report["missing_keys"], report["mismatched_keys"], checkpoint)
    return Loaded(model=model.eval().to(device), processor=processor, device=device)


def _refuse_gaps(model: Module, missing: Iterable[str], mismatched: Iterable[object], checkpoint: Checkpoint) -> None:
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
    """The device to run on: `auto` takes an accelerator where torch finds one. Raises BackendError for one it lacks."""
    import torch

    here = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if wanted == "auto":
        return next(name for name, found in here.items() if found)
    if not here.get(wanted.split(":")[0], False):
        found = ", ".join(name for name, is_here in here.items() if is_here)
        raise BackendError(f"torch finds no device {wanted!r} here", where="device", fix=f"auto, or one of {found}")
    return wanted


def to_device(rgb: Rgb, device: str) -> torch.Tensor:
    """The photo's bytes on the device, (3, H, W) uint8: a quarter of what its floats would weigh."""
    import torch

    return torch.tensor(rgb, device=device).permute(2, 0, 1)


@contextmanager
def inference(options: CheckpointOptions, where: str) -> Iterator[None]:
    """No gradients; a number format that the device cannot compute with is a message."""
    import torch

    try:
        with torch.inference_mode():
            yield
    except RuntimeError as error:
        if "not implemented for" not in str(error):
            raise
        raise BackendError(
            f"this device cannot run the model in {options.dtype}: {' '.join(str(error).split())[:160]}",
            where=f"{where}.dtype",
            fix=f"--set {where}.dtype=float32",
        ) from None


def in_batches(
    frames: Sequence[Frame],
    options: CheckpointOptions,
    prepare: Callable[[Frame], Mapping[str, torch.Tensor]],
    run: Callable[[Sequence[Frame], dict[str, torch.Tensor]], Sequence[ResultT]],
) -> list[ResultT]:
    """Prepare and run the frames, in order; neighbours whose inputs have one shape go together."""
    import torch

    found: list[ResultT] = []
    for start in range(0, len(frames), options.batch_size):
        batch = [(frame, prepare(frame)) for frame in frames[start : start + options.batch_size]]
        for _, group in groupby(batch, key=lambda pair: pair[1]["pixel_values"].shape):
            alike = list(group)
            joined = {key: torch.cat([inputs[key] for _, inputs in alike]) for key in alike[0][1]}
            found += run([frame for frame, _ in alike], joined)
    return found


def sized(processor: ProcessorMixin, shorter: int | None, where: str) -> dict[str, object]:
    """Settings for a call of the image processor that give the input another shorter edge, px; none for None.

    Raises BackendError for a processor that works at the photo's own size.
    """
    if shorter is None:
        return {}
    own = dict(processor.size or {})
    if not own:
        raise BackendError("this checkpoint has no input size to change", where=f"{where}.size", fix="leave it out")
    return {"size": _input_size(own, shorter)}


def _input_size(own: Mapping[str, int | None], shorter: int) -> dict[str, int]:
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
    files = sorted({file for pattern in _CONTENT for file in folder.glob(pattern) if file.is_file()})
    return _hashed(tuple((file, file.stat().st_mtime_ns, file.stat().st_size) for file in files))


@lru_cache(maxsize=16)
def _hashed(files: tuple[tuple[Path, int, int], ...]) -> str:
    total = hashlib.sha256()
    for path, _, _ in files:
        with path.open("rb") as file:
            total.update(path.name.encode() + hashlib.file_digest(file, "sha256").digest())
    return total.hexdigest()
