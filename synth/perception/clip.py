"""Pictures and words in one space, by open_clip; and the question whether a region's label fits what its box shows.

The label check is an opinion that no detector shares. A region's crop is compared with "a photo of a …" for every label
of the detector's vocabulary (Radford et al., arXiv 2103.00020; weights by open_clip). Its own label must be among the
best, or hardly worse than the best; else the region is dropped and counted. What is too small to tell is kept: the
check then has no opinion.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt
from pydantic import Field

from synth.errors import BackendError
from synth.perception import _checkpoint
from synth.types import Box, Frame, Loss, Regions

if TYPE_CHECKING:
    import torch
    from PIL import Image

WHERE = "perception.labels"
DEFAULT = "laion/CLIP-ViT-B-32-laion2B-s34B-b79K"
UNLIKE = "label_unlike_crop"
"""Reason of a loss: the crop looks more like many other labels."""
_CONFIG = "open_clip_config.json"
_WEIGHTS = ("open_clip_model.safetensors", "open_clip_pytorch_model.safetensors")
Floats = npt.NDArray[np.float32]


class LabelCheckOptions(_checkpoint.CheckpointOptions):
    """Which CLIP model, and how far a label may be from the best one."""

    path: str = DEFAULT
    size: None = None
    """The model's own."""
    batch_size: int = Field(default=32, ge=1)
    """Crops that go through the model together."""
    prompt: str = "a photo of a {label}"
    top_k: int = Field(default=5, ge=1)
    """The label passes among this many best of the vocabulary; one with no more labels passes whole."""
    margin: float = Field(default=0.02, ge=0)
    """It passes too where its cosine similarity is at most this much below the best."""
    min_side: int = Field(default=24, ge=1)
    """Boxes with a shorter side, px, are not judged."""
    context: float = Field(default=0.1, ge=0)
    """How much of the picture around the box is shown, as a share of its sides."""


class _Clip(Protocol):
    """The little of open_clip's models that is used."""

    def encode_image(self, image: torch.Tensor, normalize: bool) -> torch.Tensor: ...
    def encode_text(self, text: torch.Tensor, normalize: bool) -> torch.Tensor: ...


class _Tokenizer(Protocol):
    def __call__(self, texts: list[str]) -> torch.Tensor: ...


def identity(options: LabelCheckOptions) -> str:
    """The checkpoint's content and the options that change the verdicts. Raises BackendError without weights."""
    settings = (options.prompt, options.top_k, f"{options.margin:g}", options.min_side, f"{options.context:g}")
    return encoder_identity(options, WHERE, *map(str, settings))


def load(options: LabelCheckOptions) -> LabelCheck:
    """Load the model. Raises BackendError that says how to fetch it."""
    return LabelCheck(encoder=load_encoder(options, WHERE), options=options)


def encoder_identity(options: _checkpoint.CheckpointOptions, where: str, *more: str) -> str:
    """The checkpoint's content and how it is run. Raises BackendError without weights."""
    return _checkpoint.name_of(_locate(options, where), options, *more).replace("transformers:", "clip:", 1)


def load_encoder(options: _checkpoint.CheckpointOptions, where: str) -> Encoder:
    """Load the model. `where`: the section of the config that asks for it.

    Raises BackendError that says how to fetch it.
    """
    checkpoint = _locate(options, where)
    try:
        import open_clip
    except ImportError:
        raise BackendError(
            "the package open_clip_torch is not installed", where=where, fix="pip install open_clip_torch"
        ) from None
    import torch
    from open_clip.transform import PreprocessCfg, image_transform_v2

    device = _checkpoint.device_of(options.device)
    name = f"local-dir:{checkpoint.folder}"
    try:
        model = open_clip.create_model(name, device=device, require_pretrained=True, pretrained_text=False)
        tokenizer = open_clip.get_tokenizer(name)
    except (OSError, ValueError, RuntimeError) as error:
        raise BackendError(
            f"not a model that open_clip can load: {' '.join(str(error).split())[:300]}",
            where=str(checkpoint.folder),
            fix="fetch the checkpoint again",
        ) from None
    settings = open_clip.get_model_preprocess_cfg(model)
    height, width = (settings["size"],) * 2 if isinstance(settings["size"], int) else settings["size"]
    return Encoder(
        model=model.eval().to(getattr(torch, options.dtype)),
        tokenizer=tokenizer,
        device=device,
        options=options,
        size=(int(height), int(width)),
        mean=tuple(settings["mean"]),
        std=tuple(settings["std"]),
        prepare=image_transform_v2(PreprocessCfg(**settings), is_train=False),
        where=where,
    )


def _locate(options: _checkpoint.CheckpointOptions, where: str) -> _checkpoint.Checkpoint:
    checkpoint = _checkpoint.locate(options, where, DEFAULT, _CONFIG)
    if not any((checkpoint.folder / name).is_file() for name in _WEIGHTS):
        # open_clip would take a pickle, or weights that are named like transformers' own.
        raise BackendError(
            f"no {_WEIGHTS[0]} in the folder",
            where=str(checkpoint.folder),
            fix=_checkpoint.advice(options.path, where, DEFAULT),
        )
    return checkpoint


@dataclass(frozen=True, kw_only=True)
class Encoder:
    """A loaded model: pictures and texts become unit vectors, whose products are cosine similarities."""

    model: _Clip
    tokenizer: _Tokenizer
    device: str
    options: _checkpoint.CheckpointOptions
    size: tuple[int, int]
    """(height, width) of the model's input."""
    mean: tuple[float, ...]
    std: tuple[float, ...]
    prepare: Callable[[Image.Image], torch.Tensor]
    """The model's own way from a picture to its input, (3, height, width): resized, and cut to its centre."""
    where: str = WHERE
    """The section of the config that asked for the model; for messages."""

    def read(self, texts: Sequence[str]) -> Floats:
        """(texts, dimensions)."""
        with _checkpoint.inference(self.options, self.where):
            words = self.tokenizer(list(texts)).to(self.device)
            read: Floats = self.model.encode_text(words, normalize=True).float().cpu().numpy()
        return read

    def look(self, inputs: Sequence[torch.Tensor]) -> Floats:
        """(inputs, dimensions); each input is (3, height, width), normalised, and all of them are one batch."""
        import torch

        with _checkpoint.inference(self.options, self.where):
            batch = torch.stack(list(inputs)).to(self.device, getattr(torch, self.options.dtype))
            seen: Floats = self.model.encode_image(batch, normalize=True).float().cpu().numpy()
        return seen


@dataclass(frozen=True, kw_only=True)
class LabelCheck:
    """A loaded model, and the vocabularies that it has read."""

    encoder: Encoder
    options: LabelCheckOptions
    texts: dict[tuple[str, ...], Floats] = field(default_factory=dict)

    def __call__(self, frames: Sequence[Frame], regions: Sequence[Regions]) -> list[Regions]:
        """The regions of each frame without those whose label does not fit."""
        return [self._one(frame, found) for frame, found in zip(frames, regions, strict=True)]

    def _one(self, frame: Frame, found: Regions) -> Regions:
        place = {label: number for number, label in enumerate(found.vocabulary)}
        judged = [i for i, r in enumerate(found.items) if r.label in place and self._large(r.box)]
        if not judged:
            return found
        likeness = self._likeness(frame, [found.items[i].box for i in judged], found.vocabulary)
        bad: dict[int, str] = {}
        for i, row in zip(judged, likeness, strict=True):
            label = found.items[i].label
            own, best = float(row[place[label]]), int(row.argmax())
            rank = int(np.count_nonzero(row > own))
            if rank >= self.options.top_k and own < row[best] - self.options.margin:
                bad[i] = f"{label}: rank {rank + 1}, {own:.3f}; {found.vocabulary[best]} {row[best]:.3f}"
        if not bad:
            return found
        loss = Loss(reason=UNLIKE, count=len(bad), example=next(iter(bad.values())))
        kept = tuple(region for i, region in enumerate(found.items) if i not in bad)
        return replace(found, items=kept, losses=(*found.losses, loss))

    def _large(self, box: Box) -> bool:
        return min(box[2] - box[0], box[3] - box[1]) >= self.options.min_side

    def _likeness(self, frame: Frame, boxes: Sequence[Box], vocabulary: tuple[str, ...]) -> Floats:
        """(boxes, labels) cosine similarities."""
        if vocabulary not in self.texts:
            self.texts[vocabulary] = self.encoder.read([self.options.prompt.format(label=name) for name in vocabulary])
        photo = _checkpoint.to_device(frame.rgb, self.encoder.device)
        seen = []
        for start in range(0, len(boxes), self.options.batch_size):
            some = boxes[start : start + self.options.batch_size]
            seen.append(self.encoder.look([self._crop(photo, box) for box in some]))
        likeness: Floats = np.concatenate(seen) @ self.texts[vocabulary].T
        return likeness

    def _crop(self, photo: torch.Tensor, box: Box) -> torch.Tensor:
        """The box with its surroundings, whole: the model's usual crop from the centre would cut a long object."""
        from torchvision.transforms.v2 import functional as tv  # type: ignore[import-untyped]

        left, top, right, bottom = surrounded(box, photo.shape[2], photo.shape[1], self.options.context)
        size, mean, std = (list(part) for part in (self.encoder.size, self.encoder.mean, self.encoder.std))
        crop = tv.resize(photo[:, top:bottom, left:right], size, tv.InterpolationMode.BICUBIC, antialias=True)
        return tv.normalize(tv.to_dtype(crop, scale=True), mean, std)


def surrounded(box: Box, width: int, height: int, context: float) -> tuple[int, int, int, int]:
    """Left, top, right, bottom of the square around a box and some of its surroundings, cut at the picture's edge."""
    x, y = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
    half = max(box[2] - box[0], box[3] - box[1]) * (0.5 + context)
    left, top = max(0, int(x - half)), max(0, int(y - half))
    return left, top, min(width, int(np.ceil(x + half))), min(height, int(np.ceil(y + half)))
