"""Qwen-VL: the image processor's `longest_edge` and `shortest_edge` are areas in pixels, not sides."""

from __future__ import annotations

from collections.abc import Mapping

from finetune.families import ImageSettings, ModelFamily


def image_budget(settings: ImageSettings, max_pixels: int) -> ImageSettings:
    """Lower the largest area to the budget, and the smallest with it where it would lie above."""
    size = settings.get("size")
    if not isinstance(size, Mapping):
        return {}
    return {"size": {key: min(value, max_pixels) for key, value in size.items() if isinstance(value, int)}}


MODEL = ModelFamily(
    name="qwen_vl",
    version=1,
    model_types=("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe"),
    image_budget=image_budget,
)
