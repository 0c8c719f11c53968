"""After training: does the saved folder hold what was trained, and does it do anything at all?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from finetune.loading import Device, VisionLanguageModel, encode, last_logprobs, load_model, load_processor
from finetune.quantized import load_quantized
from synth.errors import RunError

if TYPE_CHECKING:
    import torch
    from datasets import Dataset

PROBES = 4
"""Rows that are asked."""
TOLERANCE = {"cpu": 1e-3, "cuda": 0.25}
"""Largest allowed difference of a log-probability after reloading: float32 on a CPU, bfloat16 on a GPU."""


@dataclass(frozen=True, kw_only=True)
class ReloadCheck:
    """Largest absolute differences of next-token log-probabilities over a few rows."""

    adapter_effect: float
    """Reloaded adapter on against off."""
    reload_difference: float
    """Reloaded against the model in memory."""


def probe(loaded: VisionLanguageModel, rows: Dataset) -> torch.Tensor:
    """Next-token log-probabilities of the first rows, one at a time, shape (rows, vocabulary), on the CPU."""
    import torch

    results = []
    for row in rows.select(range(min(PROBES, len(rows)))):
        text = loaded.processor.apply_chat_template(row["prompt"], tokenize=False, add_generation_prompt=True)
        batch = encode(loaded.processor, [text], [row["images"] or []])
        results.append(last_logprobs(loaded, batch).cpu())
    return torch.cat(results)


def reload_check(
    model: str, adapter: Path, rows: Dataset, trained: torch.Tensor, device: Device, *, quantized: bool = False
) -> ReloadCheck:
    """Load base and adapter anew and compare. Raises RunError for an adapter without effect or one that changed."""
    loaded = _quantized(model, adapter) if quantized else load_model(model, adapter, device=device)
    again = probe(loaded, rows)
    with loaded.model.disable_adapter():
        base = probe(loaded, rows)
    check = ReloadCheck(
        adapter_effect=float((again - base).abs().max()), reload_difference=float((again - trained).abs().max())
    )
    if check.adapter_effect == 0:
        raise RunError(
            "the saved adapter changes nothing: its outputs equal the base model's",
            where=str(adapter),
            fix="look at the losses (for grpo at zero_variance: groups of one reward teach nothing); a higher "
            "learning_rate or more steps may be needed",
        )
    # Written so that NaN fails too.
    if not check.reload_difference <= TOLERANCE[loaded.device]:
        raise RunError(
            f"the saved adapter is not the trained one: reloaded, its outputs differ by {check.reload_difference:.3g}",
            where=str(adapter),
        )
    return check


def _quantized(model: str, adapter: Path) -> VisionLanguageModel:
    from peft import PeftModel

    adapted = PeftModel.from_pretrained(load_quantized(model), str(adapter)).eval()
    processor = load_processor(str(adapter), adapted.config.model_type)
    return VisionLanguageModel(name=f"{model}+{adapter}", model=adapted, processor=processor, device="cuda")
