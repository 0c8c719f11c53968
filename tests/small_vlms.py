"""Small vision-language models with random weights, of stock classes, for tests: LLaVA, Qwen2.5-VL and SmolVLM.

LLaVA and Qwen differ where it matters: LLaVA's template puts a space before the answer (" A" is one token), Qwen's
does not; LLaVA sees every image at one size, Qwen at its own.
"""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from finetune.score import Question
from synth.dataset.prompt import completion_messages, item_prompt, prompt_messages
from synth.dataset.rows import schema
from synth.guard.certificate import CLEAN

SIDE = 32
TURN_TEMPLATE = (
    "{% for m in messages %}{{ m['role'] | capitalize }}:{% if m['content'][0]['type'] != 'image' %} {% endif %}"
    "{% for c in m['content'] %}{% if c['type'] == 'image' %}<image>{% else %}{{ c['text'] }}{% endif %}{% endfor %}"
    "<end>\n{% endfor %}{% if add_generation_prompt %}Assistant:{% endif %}"
)
CHATML_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{% for c in m['content'] %}{% if c['type'] == 'image' %}"
    "<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ c['text'] }}{% endif %}{% endfor %}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SMOLVLM_TEMPLATE = (
    "<|im_start|>{% for m in messages %}{{ m['role'] | capitalize }}{% if m['content'][0]['type'] == 'image' %}:"
    "{% else %}: {% endif %}{% for c in m['content'] %}{% if c['type'] == 'text' %}{{ c['text'] }}"
    "{% elif c['type'] == 'image' %}<image>{% endif %}{% endfor %}<end_of_utterance>\n{% endfor %}"
    "{% if add_generation_prompt %}Assistant:{% endif %}"
)
QUESTION = "Which colour is the picture?"
CHOICES = ("red", "blue")
CORPUS = [
    f"{QUESTION}\n(A) red\n(B) blue\n(C) green\n(D) white",
    "User: Assistant: A Assistant: B Assistant: C Assistant: D",
    "How many chairs are in the picture? Which point is closer to the camera?\n(A) A is closer\n(B) B is closer",
]


def byte_pairs(corpus: list[str], size: int, special: list[str]):
    """A byte-level BPE tokenizer of `tokenizers`, trained on the corpus."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    bpe.train_from_iterator(corpus, trainer)
    return bpe


def _tokenizer(special: list[str], roles: dict[str, str], pad: str, eos: str):
    from transformers import PreTrainedTokenizerFast

    bpe = byte_pairs(CORPUS * 20, 400, special)
    # Saved with the wrong side on purpose: scoring must not rely on it.
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe, pad_token=pad, eos_token=eos, padding_side="right", extra_special_tokens=roles
    )


def _save(model, processor, folder: Path) -> Path:
    import torch

    tokenizer = processor.tokenizer
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() > 1:  # the default spread of 0.02 leaves a model this narrow unable to learn by LoRA
                weight.normal_(0, 0.5 if "embed" in name else weight[0].numel() ** -0.5)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder


def small_llava(folder: Path) -> Path:
    """LLaVA with a CLIP tower, 32 px images in 16 patches."""
    import torch
    from transformers import CLIPImageProcessor, LlavaConfig, LlavaForConditionalGeneration, LlavaProcessor

    torch.manual_seed(0)
    tokenizer = _tokenizer(["<pad>", "<end>", "<image>"], {"image_token": "<image>"}, "<pad>", "<end>")
    side = {"height": SIDE, "width": SIDE}
    images = CLIPImageProcessor(size=side, crop_size=side, do_center_crop=True)
    processor = LlavaProcessor(
        images,
        tokenizer,
        patch_size=8,
        num_additional_image_tokens=1,
        vision_feature_select_strategy="default",
        chat_template=TURN_TEMPLATE,
    )
    size = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    text = {"model_type": "llama", "vocab_size": len(tokenizer), "max_position_embeddings": 512, "pad_token_id": 0}
    config = LlavaConfig(
        vision_config={"model_type": "clip_vision_model", "image_size": SIDE, "patch_size": 8, **size},
        text_config={**text, **size, "eos_token_id": tokenizer.eos_token_id, "bos_token_id": None},
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
        tie_word_embeddings=False,
    )
    return _save(LlavaForConditionalGeneration(config), processor, folder)


def small_qwen(folder: Path) -> Path:
    """Qwen2.5-VL, images at their own size."""
    import torch
    from transformers import (
        Qwen2_5_VLConfig,
        Qwen2_5_VLForConditionalGeneration,
        Qwen2_5_VLProcessor,
        Qwen2VLImageProcessor,
        Qwen2VLVideoProcessor,
    )

    torch.manual_seed(0)
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>"]
    special += ["<|image_pad|>", "<|video_pad|>"]
    roles = {"image_token": "<|image_pad|>", "video_token": "<|video_pad|>"}
    tokenizer = _tokenizer(special, roles, "<|endoftext|>", "<|im_end|>")
    patches = {"patch_size": 8, "merge_size": 2, "size": {"shortest_edge": 16 * 16, "longest_edge": 64 * 64}}
    images = Qwen2VLImageProcessor(**patches)
    processor = Qwen2_5_VLProcessor(images, tokenizer, Qwen2VLVideoProcessor(**patches), chat_template=CHATML_TEMPLATE)
    ids = tokenizer.convert_tokens_to_ids
    config = Qwen2_5_VLConfig(
        vision_config={
            "depth": 2,
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_heads": 2,
            "patch_size": 8,
            "out_hidden_size": 32,
            "fullatt_block_indexes": [1],
            "window_size": 32,
        },
        text_config={
            "vocab_size": len(tokenizer),
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "num_key_value_heads": 2,
            "max_position_embeddings": 512,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 3, 3]},
        },
        image_token_id=ids("<|image_pad|>"),
        video_token_id=ids("<|video_pad|>"),
        vision_start_token_id=ids("<|vision_start|>"),
        vision_end_token_id=ids("<|vision_end|>"),
    )
    return _save(Qwen2_5_VLForConditionalGeneration(config), processor, folder)


def png(colour: tuple[int, int, int], width: int = SIDE, height: int = SIDE) -> bytes:
    """A picture of one colour."""
    buffer = io.BytesIO()
    Image.fromarray(np.full((height, width, 3), colour, np.uint8)).save(buffer, "PNG")
    return buffer.getvalue()


def colour_rows(n: int, seed: int = 0) -> list[dict[str, object]]:
    """Rows that a model can learn in a few steps: is the picture red or blue? Every third row shows two pictures."""
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(n):
        letter = "AB"[int(rng.integers(2))]
        n_images = 2 if i % 3 == 2 else 1
        bright, dim = int(rng.integers(150, 255)), int(rng.integers(0, 60))
        picture = png((bright, dim, dim) if letter == "A" else (dim, dim, bright))
        role = "replay" if i % 4 == 3 else "target"
        rows.append(
            {
                "qa_id": f"qa-{i:04d}",
                "images": [{"bytes": picture, "path": None}] * n_images,
                "prompt": prompt_messages(QUESTION, CHOICES, n_images),
                "completion": completion_messages(letter),
                "question": QUESTION,
                "choices": list(CHOICES),
                "answer": letter,
                "task": "recognition",
                "skill": "object_colour" if role == "replay" else "colour_at_mark",
                "role": role,
                "difficulty": 0.1,
                "source_group": f"photo-{i}",
            }
        )
    return rows


def questions(rows: list[dict[str, object]]) -> list[Question]:
    """The same rows as evaluation asks them."""
    return [
        Question(
            item_id=row["qa_id"],
            text=item_prompt(row["question"], row["choices"]),
            images=tuple(image["bytes"] for image in row["images"]),
            n_options=len(row["choices"]),
        )
        for row in rows
    ]


def write_rows(folder: Path, rows: list[dict[str, object]], verdict: str | None = CLEAN) -> Path:
    """A dataset folder of two shards, with a certificate unless `verdict` is None."""
    (folder / "data").mkdir(parents=True)
    table = pa.Table.from_pylist(rows, schema=schema())
    half = (len(rows) + 1) // 2
    for i, part in enumerate((table.slice(0, half), table.slice(half))):
        pq.write_table(part, folder / "data" / f"train-0000{i}-of-00002.parquet")
    if verdict is not None:
        (folder / "certificate.json").write_text(f'{{"verdict": "{verdict}"}}')
    return folder


def small_smolvlm(folder: Path) -> Path:
    """SmolVLM with Idefics3's processor (as SmolVLM 1 has it; its own wants num2words), one tile of 32 px an image."""
    import torch
    from transformers import Idefics3ImageProcessor, Idefics3Processor, SmolVLMConfig, SmolVLMForConditionalGeneration

    torch.manual_seed(0)
    names = {"image_token": "<image>", "fake_image_token": "<fake_token_around_image>"}
    names |= {"global_image_token": "<global-img>", "end_of_utterance_token": "<end_of_utterance>"}
    special = ["<pad>", "<|im_start|>", *names.values()]
    tokenizer = _tokenizer(special, names, "<pad>", "<end_of_utterance>")
    images = Idefics3ImageProcessor(
        size={"longest_edge": SIDE}, max_image_size={"longest_edge": SIDE}, do_image_splitting=False
    )
    processor = Idefics3Processor(images, tokenizer, image_seq_len=4, chat_template=SMOLVLM_TEMPLATE)
    ids = tokenizer.convert_tokens_to_ids
    size = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = SmolVLMConfig(
        vision_config={"image_size": SIDE, "patch_size": 8, **size},
        text_config={
            "model_type": "llama",
            "vocab_size": len(tokenizer),
            "max_position_embeddings": 512,
            "pad_token_id": ids("<pad>"),
            "eos_token_id": ids("<end_of_utterance>"),
            "bos_token_id": ids("<|im_start|>"),
            **size,
        },
        scale_factor=2,
        image_token_id=ids("<image>"),
        pad_token_id=ids("<pad>"),
    )
    return _save(SmolVLMForConditionalGeneration(config), processor, folder)


TEXT = {
    "vocab_size": 400,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
}
VISION = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
M_ROPE = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 3, 3]}


def small_config(family: str, folder: Path) -> Path:
    """A folder with nothing but the config.json of a small model of a family."""
    import transformers

    qwen_vision = {"depth": 2, "hidden_size": 32, "intermediate_size": 64, "num_heads": 2, "patch_size": 8}
    configs = {
        "smolvlm": lambda: transformers.SmolVLMConfig(
            vision_config={"image_size": 32, "patch_size": 8, **VISION}, text_config={"model_type": "llama", **TEXT}
        ),
        "qwen2_5_vl": lambda: transformers.Qwen2_5_VLConfig(
            vision_config={**qwen_vision, "out_hidden_size": 32, "fullatt_block_indexes": [1], "window_size": 32},
            text_config={**TEXT, "rope_parameters": M_ROPE},
        ),
        "qwen3_vl": lambda: transformers.Qwen3VLConfig(
            vision_config={**qwen_vision, "out_hidden_size": 32, "deepstack_visual_indexes": [0]},
            text_config={**TEXT, "head_dim": 16, "rope_parameters": M_ROPE},
        ),
        "internvl": lambda: transformers.InternVLConfig(
            vision_config={"image_size": [32, 32], "patch_size": [8, 8], **VISION},
            text_config={"model_type": "qwen2", **TEXT},
        ),
        "llava_onevision": lambda: transformers.LlavaOnevisionConfig(
            vision_config={"model_type": "siglip_vision_model", "image_size": 32, "patch_size": 8, **VISION},
            text_config={"model_type": "qwen2", **TEXT},
        ),
    }
    configs[family]().save_pretrained(folder)
    return folder
