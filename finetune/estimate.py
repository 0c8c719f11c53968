"""How much memory a training will need, from the model's config alone: `s2p train CONFIG --dry-run`.

Bytes, with n = rows in memory x tokens of the longest row, b = bytes of a number (2 in bfloat16, 4 in float32), and of
the decoder L layers, width h, width of keys and values k, width of the MLP i, vocabulary v:

    weights       parameters x b; 4 bits: the decoder's linear layers at 0.5 + (1 + 4 / 256) / 64 bytes a weight
                  (NF4 in blocks of 64, double quantised: Dettmers et al., arXiv 2305.14314)
    adapter       LoRA parameters r (in + out) a layer, with DoRA + out, in float32 (bfloat16 beside 4-bit weights)
    gradients     as many numbers as the adapter has
    optimiser     AdamW: two numbers for each of the adapter's
    activations   one layer keeps n b (10 h + 2 k + 4 i): norms, queries, attention's output, residuals; keys and
                  values; gate, up, their product and its input. Its gradients double that. With checkpointing each
                  layer keeps its input alone, n b h, and one layer at a time is computed anew; without, all L keep all
    logits        TRL projects tiles: min(n, 4096) x min(v, 32768) numbers in float32, twice (value and gradient)
    generation    GRPO: keys and values of all layers, replies x tokens x 2 k b L

The vision tower runs without gradients unless `lora_scope: all`, which adds its layers at four tokens for each of the
decoder's. What comes on top: the CUDA context, fragmentation, and libraries' own buffers. The formula follows from what
the layers store; it has not been held against a GPU.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Literal

from finetune.adapters import Tower, lora_targets, parameters_by_tower
from finetune.loading import load_processor, quiet
from finetune.preflight import preflight
from finetune.rows import read_rows
from finetune.settings import TrainConfig
from finetune.skeleton import skeleton
from synth.config import Config
from synth.errors import BackendError, DatasetError

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

ASSUMED_TOKENS = 1024
TOKEN_TILE, VOCABULARY_TILE = 4096, 32_768
"""Of TRL's fused output head (trl 1.16, kernels/chunked_logprob.py)."""
VISION_TOKENS = 4
"""Patches of the vision tower for each token of the decoder: families merge 2 x 2 or more."""
GIB = 2**30

Part = Literal["weights", "adapter", "gradients", "optimiser", "activations", "logits", "generation"]


class Estimate(Config):
    """Memory of one device."""

    model: str
    parameters: int
    parameters_by_tower: dict[Tower, int]
    modules: dict[Tower, int]
    """Layers that get an adapter."""
    lora_parameters: int
    rows: int
    """Sequences in memory at once."""
    tokens: int
    tokens_from: str
    checkpointing: bool
    bytes: dict[Part, int]
    total: int


def estimate(config: TrainConfig) -> Estimate:
    """The estimate for a config. A device that is not `cpu` is taken for a GPU.

    Raises BackendError that names the file to fetch where the model's config is not within reach.
    """
    model = skeleton(config.model)
    targets = lora_targets(model, config.lora_scope)
    lora = lora_parameters(model, targets.names, config.lora_r, config.use_dora)
    tokens, source = longest_row(config, model.config.model_type)
    on_gpu = config.device != "cpu"
    checkpointing = on_gpu if config.gradient_checkpointing is None else config.gradient_checkpointing
    width = 2 if on_gpu and config.precision != "fp32" else 4
    rows = config.batch_size * (2 if config.method == "dpo" else 1)
    tokens += config.grpo.max_new_tokens if config.method == "grpo" else 0
    n = rows * tokens
    trained = 2 if config.quantization is not None else 4
    text = model.config.get_text_config()
    parts: dict[Part, int] = {
        "weights": _weights(model, config, 2 if on_gpu else 4),
        "adapter": lora * trained,
        "gradients": lora * trained,
        "optimiser": 2 * lora * trained,
        "activations": _activations(text, n, width, checkpointing),
        "logits": 2 * min(n, TOKEN_TILE) * min(text.vocab_size, VOCABULARY_TILE) * 4,
    }
    if config.lora_scope == "all":
        parts["activations"] += _activations(model.config.vision_config, VISION_TOKENS * n, width, checkpointing)
    if config.method == "grpo":
        parts["generation"] = n * 2 * _key_width(text) * width * text.num_hidden_layers
    return Estimate(
        model=config.model,
        parameters=sum(p.numel() for p in model.parameters()),
        parameters_by_tower=dict(parameters_by_tower(model)),
        modules=dict(targets.towers),
        lora_parameters=lora,
        rows=rows,
        tokens=tokens,
        tokens_from=source,
        checkpointing=checkpointing,
        bytes=parts,
        total=sum(parts.values()),
    )


def lora_parameters(model: PreTrainedModel, names: tuple[str, ...], r: int, dora: bool) -> int:
    """Numbers that LoRA trains: A is r x in, B is out x r, DoRA's magnitude is out."""
    layers = [model.get_submodule(name) for name in names]
    return sum(r * (x.in_features + x.out_features) + (x.out_features if dora else 0) for x in layers)


def longest_row(config: TrainConfig, model_type: str) -> tuple[int, str]:
    """Tokens of the longest row, and how they are known: counted where dataset and processor are there."""
    from trl.trainer.sft_trainer import DataCollatorForVisionLanguageModeling

    try:
        processor = load_processor(config.model, model_type, config.image_max_pixels)
        with quiet(), TemporaryDirectory() as cache:
            rows = read_rows(config.dataset, config.split, cache=Path(cache))
            collator = DataCollatorForVisionLanguageModeling(processor, max_length=None, completion_only_loss=True)
            checked = preflight(rows, processor, collator, context=None, batch_size=1)
    except BackendError as error:
        return ASSUMED_TOKENS, f"assumed, since the processor is not here ({error.message.splitlines()[0]})"
    except DatasetError as error:
        if (config.dataset / "data").is_dir():
            raise  # rows that cannot be trained on: that is what a dry run is for
        return ASSUMED_TOKENS, f"assumed, since the dataset is not here ({error.message})"
    return checked.longest_tokens, f"row {checked.longest_row}, of {checked.collated} rows looked at"


def format_estimate(found: Estimate) -> str:
    """The estimate as a few lines for a terminal."""
    towers = ", ".join(f"{tower} {n / 1e6:,.1f} M" for tower, n in found.parameters_by_tower.items())
    layers = ", ".join(f"{tower} {n}" for tower, n in found.modules.items())
    lines = [
        f"model        {found.parameters / 1e6:,.1f} M parameters ({towers})",
        f"LoRA         {found.lora_parameters / 1e6:,.2f} M parameters in layers: {layers}",
        f"batch        {found.rows} x {found.tokens} tokens ({found.tokens_from})",
    ]
    lines += [f"{name:<12} {size / GIB:8.2f} GiB" for name, size in found.bytes.items()]
    lines.append(f"{'together':<12} {found.total / GIB:8.2f} GiB, and the CUDA context and fragmentation on top")
    return "\n".join(lines)


def _weights(model: PreTrainedModel, config: TrainConfig, width: int) -> int:
    total = sum(p.numel() for p in model.parameters())
    if config.quantization is None:
        return total * width
    names = lora_targets(model, "language").names
    packed = sum(model.get_submodule(name).weight.numel() for name in names)
    return round(packed * (0.5 + (1 + 4 / 256) / 64)) + (total - packed) * width


def _activations(part: PreTrainedConfig, n: int, width: int, checkpointing: bool) -> int:
    h, layers = part.hidden_size, getattr(part, "num_hidden_layers", None) or part.depth
    mlp = getattr(part, "intermediate_size", None) or 4 * h
    one = n * width * (10 * h + 2 * _key_width(part) + 4 * mlp)
    return layers * n * width * h + 2 * one if checkpointing else layers * one + one


def _key_width(part: PreTrainedConfig) -> int:
    heads = getattr(part, "num_attention_heads", None) or part.num_heads
    head = getattr(part, "head_dim", None) or part.hidden_size // heads
    return int((getattr(part, "num_key_value_heads", None) or heads) * head)
