"""What a family of vision-language models needs beyond `AutoModelForImageTextToText`: the record of a MODEL plug-in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from synth.plugins import Folder, load, names
from synth.types import JsonValue

ImageSettings: TypeAlias = Mapping[str, JsonValue]
"""An image processor's settings (its `to_dict()`), e.g. {"size": {"longest_edge": 1536}, …}."""


@dataclass(frozen=True, kw_only=True)
class ModelFamily:
    """One family. A family without needs of its own is served by `generic`."""

    name: str
    version: int
    model_types: tuple[str, ...]
    """Values of `config.model_type` that belong here; empty for `generic`."""
    image_budget: Callable[[ImageSettings, int], ImageSettings]
    """(the image processor's settings, most pixels an image) -> the settings to change. Raises ConfigError when the
    budget cannot be kept, e.g. because the vision tower's input is fixed and larger."""


MODELS = Folder("finetune.models", "MODEL", ModelFamily)


def family_of(model_type: str) -> ModelFamily:
    """The family of a `config.model_type`; `generic` where no plug-in claims it."""
    for name in names(MODELS):
        family = load(MODELS, name)
        if model_type in family.model_types:
            return family
    return load(MODELS, "generic")
