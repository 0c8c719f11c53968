"""A model's modules without its weights: built on the meta device from its config alone, in seconds for any size."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from finetune.adapters import decoder_name
from synth.errors import BackendError

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def skeleton(path: str) -> PreTrainedModel:
    """The model class of `path` with every module and shape, and no numbers.

    Raises BackendError that names the file to fetch where the config is neither in a folder nor on a hub in reach.
    """
    import torch
    from transformers import AutoConfig, AutoModelForImageTextToText

    try:
        config = AutoConfig.from_pretrained(path)
        with torch.device("meta"):
            return AutoModelForImageTextToText.from_config(config)
    except (OSError, ValueError, KeyError, ImportError) as error:
        reason = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        here = Path(path).is_dir()
        raise BackendError(
            f"no usable config.json{' in this folder' if here else ', and no hub in reach'}: {reason}",
            where=f"model: {path}",
            fix=f"put config.json of {path} into a folder (for token counts the processor's files too: "
            "processor_config.json or preprocessor_config.json, tokenizer.json, tokenizer_config.json, "
            "chat_template.jinja) and give that folder as `model`; weights are not needed",
        ) from None


def unquantized_modules(path: str) -> list[str]:
    """Modules outside the decoder (vision tower, projector, output head), by their outermost names."""
    import torch

    model = skeleton(path)
    decoder = decoder_name(model)
    outside: list[str] = []
    for name, module in model.named_modules():
        inside = name == decoder or name.startswith(decoder + ".") or decoder.startswith(name + ".") or not name
        covered = any(name == known or name.startswith(known + ".") for known in outside)
        if not inside and not covered and any(isinstance(m, torch.nn.Linear) for m in module.modules()):
            outside.append(name)
    return outside
