"""Objects of your own list of words, by default Grounding DINO tiny (Liu et al., arXiv 2303.05499; Apache-2.0).

Grounding DINO and MM Grounding DINO read one sentence ("cat. traffic light.") and answer with phrases of it; OWL-ViT
and OWLv2 (Minderer et al., arXiv 2306.09683) compare each box with each word. Whatever comes back is mapped to the list
exactly, or dropped and counted: a phrase that joins two words, or is half of one, names nothing on the list.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import Field, field_validator

from synth.config import digest
from synth.contracts import RegionBackend
from synth.errors import BackendError
from synth.perception import _checkpoint
from synth.perception.regions._boxes import found_in
from synth.types import Frame, Loss, PluginOptions, Regions, narrow

if TYPE_CHECKING:
    import torch

WHERE = "perception.regions"
DEFAULT = "IDEA-Research/grounding-dino-tiny"
PHRASE_UNKNOWN = "phrase_unknown"
"""Reason of a loss: the detector's phrase is none of the list's words."""
_GROUNDING = ("grounding-dino", "mm-grounding-dino")
_OWL = ("owlvit", "owlv2")


class Options(_checkpoint.CheckpointOptions):
    """Which checkpoint, how it is run, and what it looks for."""

    path: str = DEFAULT
    labels: tuple[str, ...] = Field(min_length=1)
    """What to look for; the vocabulary of everything that is found."""
    min_score: float = Field(default=0.2, ge=0, le=1)
    """Boxes below are not listed at all."""
    text_threshold: float = Field(default=0.25, ge=0, le=1)
    """Grounding DINO: a word of the sentence belongs to a box above this."""

    @field_validator("labels")
    @classmethod
    def _distinct(cls, labels: tuple[str, ...]) -> tuple[str, ...]:
        plain = [" ".join(label.lower().split()) for label in labels]
        if not all(plain) or len(set(plain)) < len(plain) or any("." in label for label in plain):
            raise ValueError("labels must be different words or phrases, none empty, none with a full stop")
        return labels


def identity(options: PluginOptions) -> str:
    """The checkpoint's content, the labels and the options that change the boxes. Raises BackendError."""
    chosen = narrow(options, Options)
    more = (f"{chosen.min_score:g}", f"{chosen.text_threshold:g}", digest(list(chosen.labels))[:8])
    return _checkpoint.identity(chosen, WHERE, DEFAULT, *more)


def load(options: PluginOptions) -> _Grounding | _Owl:
    """Load the checkpoint. Raises BackendError that says how to fetch it, or that the list is too long for it."""
    chosen = narrow(options, Options)
    checkpoint = _checkpoint.locate(chosen, WHERE, DEFAULT)  # before the import, which takes seconds
    family = _checkpoint.check_family(checkpoint, _GROUNDING + _OWL, "a detector of free words")
    from transformers import AutoModelForZeroShotObjectDetection, AutoProcessor

    loaded = _checkpoint.load(checkpoint, chosen, AutoModelForZeroShotObjectDetection, AutoProcessor, "a detector")
    kind = _Owl if family in _OWL else _Grounding
    return kind(loaded=loaded, options=chosen, name=identity(chosen), words=kind.read(loaded, chosen))


@dataclass(frozen=True, kw_only=True)
class _Detector:
    """What both kinds share: the photo's way in."""

    loaded: _checkpoint.Loaded
    options: Options
    name: str
    words: Mapping[str, torch.Tensor]
    """The list as the model reads it."""

    def _prepare(self, frame: Frame) -> Mapping[str, torch.Tensor]:
        processor = self.loaded.processor.image_processor
        settings = _checkpoint.sized(processor, self.options.size, WHERE)
        photo = _checkpoint.to_device(frame.rgb, self.loaded.device)
        inputs: Mapping[str, torch.Tensor] = processor(images=photo, return_tensors="pt", **settings)
        return inputs

    def _with_words(self, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """The batch's pixels, each photo with the whole list."""
        n = len(inputs["pixel_values"])
        words = {key: value.repeat(n, 1) for key, value in self.words.items()}
        return inputs | words | {"pixel_values": inputs["pixel_values"].to(self.loaded.model.dtype)}

    def _regions(
        self, frame: Frame, result: Mapping[str, torch.Tensor], labels: Sequence[str | None], unknown: Sequence[str]
    ) -> Regions:
        rows = [
            (score, label, box)
            for score, label, box in zip(result["scores"].tolist(), labels, result["boxes"].tolist(), strict=True)
            if label is not None
        ]
        losses = (Loss(reason=PHRASE_UNKNOWN, count=len(unknown), example=unknown[0]),) if unknown else ()
        return Regions(
            items=found_in(frame.rgb.shape, rows),
            complete=False,
            backend=self.name,
            vocabulary=self.options.labels,
            losses=losses,
        )


class _Grounding(_Detector):
    @staticmethod
    def read(loaded: _checkpoint.Loaded, options: Options) -> Mapping[str, torch.Tensor]:
        sentence = ". ".join(" ".join(label.lower().split()) for label in options.labels) + "."
        words = loaded.processor.tokenizer(sentence, return_tensors="pt", return_token_type_ids=True)
        n, most = words["input_ids"].shape[1], loaded.model.config.max_text_len
        if n > most:
            raise BackendError(
                f"the list of {len(options.labels)} labels is {n} tokens long, the model reads {most}",
                where=f"{WHERE}.labels",
                fix="shorten the list, or split it between `regions` and a further member of `consensus.regions`",
            )
        return dict(words.to(loaded.device))

    def __call__(self, frames: Sequence[Frame]) -> list[Regions | None]:
        return _checkpoint.in_batches(frames, self.options, self._prepare, self._run)

    def _run(self, frames: Sequence[Frame], inputs: dict[str, torch.Tensor]) -> list[Regions | None]:
        processor, everything = self.loaded.processor, self._with_words(inputs)
        with _checkpoint.inference(self.options, WHERE):
            outputs = self.loaded.model(**everything)
            outputs.logits, outputs.pred_boxes = outputs.logits.float(), outputs.pred_boxes.float()
            results = processor.post_process_grounded_object_detection(
                outputs,
                everything["input_ids"],
                threshold=self.options.min_score,
                text_threshold=self.options.text_threshold,
                target_sizes=[frame.rgb.shape[:2] for frame in frames],
            )
        known = self._phrases()
        found: list[Regions | None] = []
        for frame, result in zip(frames, results, strict=True):
            phrases = [_plain(phrase) for phrase in result["text_labels"]]
            unknown = [phrase or "no word above text_threshold" for phrase in phrases if phrase not in known]
            found.append(self._regions(frame, result, [known.get(phrase) for phrase in phrases], unknown))
        return found

    def _phrases(self) -> dict[str, str]:
        """How the tokenizer spells each label ("t-shirt" comes back as "t - shirt")."""
        tokenizer = self.loaded.processor.tokenizer
        ids = [tokenizer(label.lower(), add_special_tokens=False)["input_ids"] for label in self.options.labels]
        return dict(zip(map(_plain, tokenizer.batch_decode(ids)), self.options.labels, strict=True))


class _Owl(_Detector):
    @staticmethod
    def read(loaded: _checkpoint.Loaded, options: Options) -> Mapping[str, torch.Tensor]:
        tokenizer = loaded.processor.tokenizer
        prompts = [f"a photo of a {label}" for label in options.labels]
        most = loaded.model.config.text_config.max_position_embeddings
        n, longest = max(zip(map(len, tokenizer(prompts)["input_ids"]), options.labels, strict=True))
        if n > most:
            raise BackendError(
                f"the label {longest!r} is {n} tokens long with its prompt, the model reads {most}",
                where=f"{WHERE}.labels",
                fix="shorten it",
            )
        words = tokenizer(prompts, padding="max_length", max_length=most, return_tensors="pt")
        return {key: words[key].to(loaded.device) for key in ("input_ids", "attention_mask")}

    def __call__(self, frames: Sequence[Frame]) -> list[Regions | None]:
        return _checkpoint.in_batches(frames, self.options, self._prepare, self._run)

    def _run(self, frames: Sequence[Frame], inputs: dict[str, torch.Tensor]) -> list[Regions | None]:
        with _checkpoint.inference(self.options, WHERE):
            outputs = self.loaded.model(**self._with_words(inputs))
            outputs.logits, outputs.pred_boxes = outputs.logits.float(), outputs.pred_boxes.float()
            results = self.loaded.processor.post_process_grounded_object_detection(
                outputs,
                threshold=self.options.min_score,
                target_sizes=[frame.rgb.shape[:2] for frame in frames],
            )
        labels = self.options.labels
        return [
            self._regions(frame, result, [labels[index] for index in result["labels"].tolist()], [])
            for frame, result in zip(frames, results, strict=True)
        ]


def _plain(phrase: str) -> str:
    return " ".join(phrase.replace(".", " ").split())


BACKEND = RegionBackend(name="open_vocabulary", version=1, options=Options, exact=False, identity=identity, load=load)
