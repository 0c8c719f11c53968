"""QLoRA: the base model in 4 bits while its adapter is trained.

What to know: only the decoder's linear layers are quantised, since a quantised vision tower costs accuracy for little
memory; the adapter is trained against the rounded weights, so it is merged into the 16-bit base (as `s2p merge` does)
and never into the quantised one; each step is slower than with 16-bit weights. Not run without a GPU.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from finetune.loading import quiet
from finetune.skeleton import unquantized_modules
from synth.errors import BackendError

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def require_quantization() -> None:
    """Raises BackendError unless there is a GPU and bitsandbytes."""
    import torch

    if not torch.cuda.is_available():
        raise BackendError("4-bit weights need a GPU", where="quantization: 4bit", fix="leave quantization out")
    if find_spec("bitsandbytes") is None:
        raise BackendError(
            "4-bit weights need the package bitsandbytes, which is not installed",
            where="quantization: 4bit",
            fix="pip install bitsandbytes, or leave quantization out",
        )


def load_quantized(path: str) -> PreTrainedModel:
    """The base model with its decoder in NF4, double quantised. Raises BackendError."""
    require_quantization()
    import torch
    from transformers import AutoModelForImageTextToText, BitsAndBytesConfig

    settings = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.bfloat16,
        llm_int8_skip_modules=unquantized_modules(path),  # in spite of its name, for 4 bits too
    )
    with quiet():
        return AutoModelForImageTextToText.from_pretrained(path, quantization_config=settings, dtype=torch.bfloat16)
