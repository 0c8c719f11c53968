"""A training folder: who owns it, how far it is, and where to go on.

The file system is the journal: `train_run.json` is written first and names the settings that the folder belongs to,
`train_record.json` is written last, and a checkpoint counts only when every file of it is whole.
"""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from synth.errors import RunError
from synth.files import write_json
from synth.types import JsonValue

if TYPE_CHECKING:
    from peft import PeftModel

logger = logging.getLogger(__name__)

CLAIM = "train_run.json"
DONE = "train_record.json"
CHECKPOINTS = "checkpoints"
SMALL = 64_000_000
"""Bytes up to which a model file counts by its contents."""
CHECKPOINT_FILES = ("adapter_model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json")


def files_digest(files: list[Path]) -> str:
    """blake2b-128 hex of the contents of files, in the order given."""
    whole = hashlib.blake2b(digest_size=16)
    for path in files:
        with path.open("rb") as stream:
            whole.update(hashlib.file_digest(stream, "sha256").digest())
    return whole.hexdigest()


def folder_digest(folder: Path) -> str:
    """Identity of a model folder: contents of its small files, names and sizes of all; "" for a name on a hub.

    Reading many gigabytes of weights to name them would cost more than it protects from.
    """
    if not folder.is_dir():
        return ""
    files = sorted(path for path in folder.iterdir() if path.is_file())
    sizes = json.dumps([[path.name, path.stat().st_size] for path in files])
    small = files_digest([path for path in files if path.stat().st_size <= SMALL])
    return hashlib.blake2b((sizes + small).encode(), digest_size=16).hexdigest()


def claim(out: Path, identity: str, settings: Mapping[str, JsonValue]) -> None:
    """Make the folder this run's, or check that it is. Raises RunError when it belongs to other settings."""
    path = out / CLAIM
    if path.is_file():
        try:
            owner = json.loads(path.read_text(encoding="utf-8")).get("identity")
        except (json.JSONDecodeError, UnicodeDecodeError, AttributeError):
            owner = None
        if owner != identity:
            raise RunError(
                "this folder holds a training with other settings, another model or other data",
                where=str(out),
                fix="give another `out`, or remove the folder",
            )
        return
    if out.exists() and any(out.iterdir()):
        raise RunError("this folder is not empty and not of a training", where=str(out), fix="give another `out`")
    out.mkdir(parents=True, exist_ok=True)
    write_json(path, {"identity": identity, "settings": settings})


def read_settings(out: Path) -> Mapping[str, JsonValue]:
    """The settings of the training that a folder belongs to. Raises RunError where they cannot be read."""
    path = out / CLAIM
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))["settings"]
    except (OSError, json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError):
        settings = None
    if not isinstance(settings, dict):
        raise RunError("no settings of a training", where=str(path), fix="give the `out` of `s2p train`")
    return settings


def newest_checkpoint(out: Path) -> Path | None:
    """The newest whole checkpoint; broken ones (a run killed while writing) are removed, with a warning."""
    folders = sorted(
        (out / CHECKPOINTS).glob("checkpoint-*"), key=lambda p: int(p.name.rsplit("-", 1)[1]), reverse=True
    )
    for folder in folders:
        broken = next((name for name in CHECKPOINT_FILES if not _whole(folder / name)), None)
        if broken is None:
            return folder
        logger.warning("checkpoint %s is not whole (%s); removed", folder.name, broken)
        shutil.rmtree(folder)
    return None


def load_adapter_weights(model: PeftModel, folder: Path) -> None:
    """Put the adapter weights of a checkpoint into the model's adapter."""
    from peft import set_peft_model_state_dict
    from safetensors.torch import load_file

    set_peft_model_state_dict(model, load_file(str(folder / "adapter_model.safetensors")))


def _whole(path: Path) -> bool:
    if not path.is_file() or path.stat().st_size == 0:
        return False
    if path.suffix == ".json":
        try:
            json.loads(path.read_text(encoding="utf-8"))
        except (json.JSONDecodeError, UnicodeDecodeError):
            return False
        return True
    if path.suffix == ".safetensors":
        return _safetensors_whole(path)
    # torch.save writes zip archives, whose directory stands at the end: a cut file has none.
    return zipfile.is_zipfile(path)


def _safetensors_whole(path: Path) -> bool:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), framework="pt"):  # checks that the header's offsets end where the file ends
            return True
    except (SafetensorError, OSError):
        return False
