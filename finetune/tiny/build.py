"""Makes the built-in VLM with random weights: a stock LLaVA of 2.5 M parameters, SegFormer tower and 4-layer Llama.

The classes are those of transformers, so AutoModelForImageTextToText and AutoProcessor load the saved folder. The tower
is a SegFormer (Xie et al. 2021) because overlapping convolutions learn from little data where a plain ViT of this size
does not; with `reshape_last_stage=False` its last hidden state is (batch, 64, 160), which LLaVA takes like a ViT's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from finetune.tiny.wordings import corpus

if TYPE_CHECKING:
    from transformers import (
        LlamaConfig,
        LlavaForConditionalGeneration,
        LlavaProcessor,
        PreTrainedTokenizerFast,
        SegformerConfig,
    )

IMAGE_SIDE = 128
"""Pixels; the processor scales every image to a square of this side."""
GRID = 8
"""Image tokens along each side: one token covers 16 x 16 px."""
WIDTH = 160
DECODER_LAYERS = 4
HEADS = 4
TOWER_WIDTHS = (32, 64, 160)
TOWER_DEPTHS = (2, 2, 3)
VOCABULARY = 760
"""Upper limit; the corpus yields 739 tokens, one for every word in it."""

PAD, START, END, IMAGE = "<|im_end|>", "<|im_start|>", "<end_of_utterance>", "<image>"
SPECIAL = ("<|endoftext|>", START, PAD, END, IMAGE)

CHAT_TEMPLATE = (
    "<|im_start|>{% for message in messages %}{{ message['role'] | capitalize }}:"
    "{% if message['content'] is string %} {{ message['content'] }}"
    "{% else %}{% if message['content'][0]['type'] != 'image' %} {% endif %}"
    "{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}{{ '<image>' }}{% else %}{{ part['text'] }}{% endif %}"
    "{% endfor %}{% endif %}<end_of_utterance>\n{% endfor %}"
    "{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}"
)
"""The wording of SmolVLM's template (Marafioti et al. 2025)."""

_OUTPUT_PROJECTIONS = ("o_proj", "fc2", "down_proj")


def build(seed: int) -> tuple[LlavaForConditionalGeneration, LlavaProcessor]:
    """The model in fp32 with random weights, and its processor. Same seed, same weights."""
    import torch
    from transformers import LlavaConfig, LlavaForConditionalGeneration, LlavaProcessor, SiglipImageProcessor

    tokenizer = _tokenizer()
    processor = LlavaProcessor(
        SiglipImageProcessor(size={"height": IMAGE_SIDE, "width": IMAGE_SIDE}),
        tokenizer,
        patch_size=IMAGE_SIDE // GRID,
        num_additional_image_tokens=0,
        vision_feature_select_strategy="full",
        chat_template=CHAT_TEMPLATE,
    )
    config = LlavaConfig(
        vision_config=_tower_config(),
        text_config=_decoder_config(tokenizer),
        image_token_id=tokenizer.convert_tokens_to_ids(IMAGE),
        vision_feature_select_strategy="full",
        vision_feature_layer=-1,
        image_seq_length=GRID * GRID,
        tie_word_embeddings=False,
    )
    model = LlavaForConditionalGeneration(config)
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() >= 2:
                parameter.normal_(0.0, _deviation(name, parameter[0].numel()), generator=generator)
    return model, processor


def _deviation(name: str, fan_in: int) -> float:
    """Standard deviation of a weight: 1 / sqrt(fan in); output projections count for less the deeper the stack."""
    if "embed_tokens" in name:
        return 0.5
    depth = sum(TOWER_DEPTHS) if "vision" in name else DECODER_LAYERS
    residual = any(part in name for part in _OUTPUT_PROJECTIONS)
    return float(fan_in**-0.5 * ((2 * depth) ** -0.5 if residual else 1.0))


def _tokenizer() -> PreTrainedTokenizerFast:
    """Byte-level BPE: every word of the corpus becomes one token, every other text is spelt in bytes."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    core.train_from_iterator(corpus(), trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token=PAD,
        eos_token=END,
        bos_token=START,
        model_max_length=2048,
        padding_side="left",
        extra_special_tokens={"image_token": IMAGE},
    )


def _tower_config() -> SegformerConfig:
    from transformers import SegformerConfig

    return SegformerConfig(
        num_encoder_blocks=len(TOWER_WIDTHS),
        depths=list(TOWER_DEPTHS),
        hidden_sizes=list(TOWER_WIDTHS),
        sr_ratios=[4, 2, 1],
        patch_sizes=[7, 3, 3],
        strides=[4, 2, 2],
        num_attention_heads=[1, 2, 4],
        mlp_ratios=[3, 3, 3],
        hidden_dropout_prob=0.0,
        drop_path_rate=0.0,
        reshape_last_stage=False,
        hidden_size=TOWER_WIDTHS[-1],
        image_size=IMAGE_SIDE,
    )


def _decoder_config(tokenizer: PreTrainedTokenizerFast) -> LlamaConfig:
    from transformers import LlamaConfig

    return LlamaConfig(
        vocab_size=len(tokenizer),
        max_position_embeddings=2048,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        hidden_size=WIDTH,
        intermediate_size=5 * WIDTH // 2,
        num_hidden_layers=DECODER_LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
    )
