"""Any model that stock `AutoModelForImageTextToText` and `AutoProcessor` load: LLaVA, SmolVLM, Idefics3, InternVL …"""

from __future__ import annotations

import math
from collections.abc import Mapping

from finetune.families import ImageSettings, ModelFamily
from synth.errors import ConfigError
from synth.types import JsonValue


def image_budget(settings: ImageSettings, max_pixels: int) -> ImageSettings:
    """A fixed input must fit, tiles become fewer, and an edge is lowered to the side of the budget's square."""
    size = _sides(settings.get("size"))
    if settings.get("image_grid_pinpoints"):
        raise ConfigError(
            "this model lays tiles on a grid that its own config fixes; the budget cannot change it",
            where="image_max_pixels",
            fix="leave image_max_pixels out and make the dataset's images smaller (their size decides the grid)",
        )
    fixed = _sides(settings.get("crop_size")) if settings.get("do_center_crop") else size
    if "height" in fixed and "width" in fixed:
        pixels = fixed["height"] * fixed["width"]
        if pixels > max_pixels:
            raise ConfigError(
                f"this model sees every image (or tile) at {fixed['width']}x{fixed['height']} = {pixels} pixels, "
                f"more than image_max_pixels {max_pixels}",
                where="image_max_pixels",
                fix="leave image_max_pixels out: the input of this vision tower is fixed",
            )
        if settings.get("crop_to_patches"):
            most = settings.get("max_patches")
            tiles = max_pixels // pixels
            return {"max_patches": min(most, tiles) if isinstance(most, int) else tiles}
        return {}
    side = math.isqrt(max_pixels)
    return {"size": {key: min(value, side) for key, value in size.items()}}


def _sides(value: JsonValue) -> Mapping[str, int]:
    if not isinstance(value, Mapping):
        return {}
    return {key: side for key, side in value.items() if isinstance(side, int)}


MODEL = ModelFamily(name="generic", version=1, model_types=(), image_budget=image_budget)
