"""An adapter merged into its base: one model folder that needs no PEFT, checked before it appears.

Merged on the CPU in float32, into the base as it is on disk: an adapter that was trained beside 4-bit weights goes into
the 16-bit ones, never into the quantised.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from finetune.loading import VisionLanguageModel, encode, last_logprobs, load_model, render
from synth.config import Config
from synth.errors import BackendError, RunError

if TYPE_CHECKING:
    import torch

TOLERANCE = 1e-3
"""Largest allowed change of a log-probability by merging or reloading in float32 (measured: 3e-7 on small models)."""
PROBE_SIDE = 64
"""Side in pixels of the picture that is asked about."""


class Merged(Config):
    """What the check found: largest differences of next-token log-probabilities, one question with a picture."""

    out: str
    effect: float
    """Adapter on against off."""
    merge_difference: float
    """Merged against adapter."""
    reload_difference: float
    """The written folder, loaded anew, against adapter."""


def base_of(adapter: Path) -> str:
    """The base model that an adapter names. Raises BackendError."""
    path = adapter / "adapter_config.json"
    try:
        name = json.loads(path.read_text(encoding="utf-8")).get("base_model_name_or_path")
    except (OSError, json.JSONDecodeError, UnicodeDecodeError, AttributeError):
        name = None
    if not isinstance(name, str) or not name:
        raise BackendError("no adapter_config.json that names its base", where=str(adapter), fix="give --model")
    return name


def merge_adapter(model: str, adapter: Path, out: Path) -> Path:
    """`merge` for who wants the folder alone: one that is there already is returned as it is."""
    if not (out / "config.json").is_file():
        merge(model, adapter, out)
    return out


def merge(model: str, adapter: Path, out: Path) -> Merged:
    """Write base and adapter as one model folder, with the processor and its image budget.

    The folder appears whole or not at all. Raises RunError when `out` is there already, when the merged model or the
    folder loaded anew answers differently from the adapter, or like the base; BackendError for what cannot be loaded.
    """
    if out.exists() and any(out.iterdir()):
        raise RunError("this folder is not empty", where=str(out), fix="give another --out")
    loaded = load_model(model, adapter, device="cpu")
    adapted = _probe(loaded)
    with loaded.model.disable_adapter():
        base = _probe(loaded)
    merged = replace(loaded, model=loaded.model.merge_and_unload())
    now = _probe(merged)
    temporary = out.with_name(f".{out.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    merged.model.save_pretrained(temporary)
    loaded.processor.save_pretrained(temporary)  # merging and saving the model alone leaves these files out
    del loaded, merged  # before the same weights are loaded a second time
    again = _probe(load_model(str(temporary), device="cpu"))
    found = Merged(
        out=str(out),
        effect=_gap(adapted, base),
        merge_difference=_gap(now, adapted),
        reload_difference=_gap(again, adapted),
    )
    # Written so that NaN fails too.
    same = found.merge_difference <= TOLERANCE and found.reload_difference <= TOLERANCE
    if not same or (found.effect > 0 and _gap(again, base) == 0):
        shutil.rmtree(temporary)
        raise RunError(
            f"the merged model differs from the adapter by {found.merge_difference:.3g} in memory and "
            f"{found.reload_difference:.3g} loaded anew (the adapter's effect is {found.effect:.3g})",
            where=str(adapter),
            fix="keep the adapter; was it trained on another base or version of it?",
        )
    if out.exists():
        out.rmdir()
    temporary.replace(out)
    return found


def _probe(loaded: VisionLanguageModel) -> torch.Tensor:
    from PIL import Image

    ramp = Image.linear_gradient("L").resize((PROBE_SIDE, PROBE_SIDE)).convert("RGB")
    return last_logprobs(loaded, encode(loaded.processor, [render(loaded.processor, "Which one is it?", 1)], [[ramp]]))


def _gap(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a - b).abs().max())
