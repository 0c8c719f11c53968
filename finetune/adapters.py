"""Where LoRA goes: full names of linear layers, by tower, never bare suffixes.

A suffix such as `q_proj` also names layers of the vision tower in most families; resolving the decoder by identity and
listing its linears works on all of them.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from synth.errors import ConfigError

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

    decoder = decoder_name(model)
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
    decoder = decoder_name(base)
    return _count([name for name, module in base.named_modules() if hasattr(module, "lora_A")], decoder)


def parameters_by_tower(model: PreTrainedModel) -> Mapping[Tower, int]:
    """Parameters of each tower; the output head belongs to the language tower, a tied one counts once."""
    decoder, counts = decoder_name(model), Counter[Tower]()
    for name, parameter in model.named_parameters():
        counts["language" if "lm_head" in name else _tower(name, decoder)] += parameter.numel()
    return {tower: counts[tower] for tower in TOWERS}


def decoder_name(model: PreTrainedModel) -> str:
    """Full name of the language tower. Raises ConfigError where the model class does not tell it."""
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
