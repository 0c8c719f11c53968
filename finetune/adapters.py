"""Where LoRA goes: full names of linear layers, by tower, never bare suffixes.

A suffix such as `q_proj` also names layers of the vision tower in most families; resolving the decoder by identity and
listing its linears works on all of them.
"""

from __future__ import annotations

import logging
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from finetune.loading import encode, last_logprobs, load_model, render
from synth.errors import ConfigError, RunError

if TYPE_CHECKING:
    from peft import PeftModel
    from transformers import PreTrainedModel

logger = logging.getLogger(__name__)

LoraScope: TypeAlias = Literal["language", "language+projector", "all"]
Tower: TypeAlias = Literal["language", "projector", "vision"]
TOWERS: tuple[Tower, ...] = ("language", "projector", "vision")
IN_SCOPE: Mapping[LoraScope, tuple[Tower, ...]] = {
    "language": ("language",),
    "language+projector": ("language", "projector"),
    "all": TOWERS,
}
MERGE_TOLERANCE = 1e-3
"""Largest allowed change of a log-probability by merging in float32 (measured: 3e-7 on small models)."""
PROJECTOR_NAMES = ("projector", "connector", "merger", "aligner", "modality_projection")
"""Parts of module names that families give to what joins the towers (LLaVA, Idefics3, Qwen-VL, others)."""


@dataclass(frozen=True, kw_only=True)
class LoraTargets:
    """The linear layers that get an adapter."""

    names: tuple[str, ...]
    """Full module names in the model, in its order."""
    towers: Mapping[Tower, int]
    """How many of them lie in each tower."""


def lora_targets(model: PreTrainedModel, scope: LoraScope) -> LoraTargets:
    """Resolve a scope to names. The output head is never among them. Raises ConfigError when nothing is left."""
    import torch

    decoder = _decoder_name(model)
    head = model.get_output_embeddings()
    linears = [
        name
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear) and module is not head and not name.endswith("lm_head")
    ]
    chosen = tuple(name for name in linears if _tower(name, decoder) in IN_SCOPE[scope])
    if not chosen:
        raise ConfigError(
            f"scope {scope!r} finds no linear layer in {type(model).__name__} (of {len(linears)} in the model)",
            where="lora_scope",
            fix="try lora_scope: all",
        )
    targets = LoraTargets(names=chosen, towers=_count(chosen, decoder))
    logger.info("LoRA scope %s: %s of %d linear layers", scope, dict(targets.towers), len(linears))
    return targets


def adapted_towers(model: PeftModel) -> Mapping[Tower, int]:
    """Count the layers that carry an adapter now, by tower: what PEFT did, not what it was asked for."""
    base = model.get_base_model()
    decoder = _decoder_name(base)
    return _count([name for name, module in base.named_modules() if hasattr(module, "lora_A")], decoder)


def _decoder_name(model: PreTrainedModel) -> str:
    decoder = model.get_decoder()
    for name, module in model.named_modules():
        if module is decoder and name:
            return name
    raise ConfigError(
        f"{type(model).__name__} does not tell its decoder, so its language tower cannot be found",
        where="model",
        fix="use a model class whose get_decoder() returns one of its modules",
    )


def _tower(name: str, decoder: str) -> Tower:
    if name.startswith(decoder + "."):
        return "language"
    return "projector" if any(part in name for part in PROJECTOR_NAMES) else "vision"


def _count(names: Iterable[str], decoder: str) -> Mapping[Tower, int]:
    counts = Counter(_tower(name, decoder) for name in names)
    return {tower: counts[tower] for tower in TOWERS}


def merge_adapter(model: str, adapter: Path, out: Path) -> Path:
    """Write base model and adapter as one model folder, with the processor; returns `out`.

    Merged on the CPU in float32. The folder appears whole or not at all, and an existing one is returned as it is.
    Raises RunError when the merged model answers a text prompt differently from the adapter, or like the base.
    """
    if (out / "config.json").is_file():
        return out
    loaded = load_model(model, adapter, device="cpu")
    batch = encode(loaded.processor, [render(loaded.processor, "Which one is it?", 0)], [[]])
    adapted = last_logprobs(loaded, batch)
    with loaded.model.disable_adapter():
        base = last_logprobs(loaded, batch)
    merged = replace(loaded, model=loaded.model.merge_and_unload())
    now = last_logprobs(merged, batch)
    error, effect = float((now - adapted).abs().max()), float((now - base).abs().max())
    # Written so that NaN fails too.
    if not error <= MERGE_TOLERANCE or (effect == 0 and float((adapted - base).abs().max()) > 0):
        raise RunError(
            f"the merged model differs from the adapter by {error:.3g} (effect {effect:.3g})", where=str(adapter)
        )
    temporary = out.with_name(f".{out.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    merged.model.save_pretrained(temporary)
    loaded.processor.save_pretrained(temporary)  # merging and saving the model alone leaves these files out
    temporary.replace(out)
    return out
