"""Load a vision-language model with its processor, render prompts, and run it on a few threads.

Offline by nature: a model is a folder. A hub name works where a hub can be reached.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from finetune.families import family_of
from synth.dataset.prompt import completion_messages, user_messages
from synth.errors import BackendError, S2PError
from synth.types import LETTERS

if TYPE_CHECKING:
    import torch
    from peft import PeftModel
    from transformers import PreTrainedModel, ProcessorMixin

    Model: TypeAlias = PreTrainedModel | PeftModel

Device: TypeAlias = Literal["auto", "cpu", "cuda"]


@dataclass(frozen=True, kw_only=True)
class VisionLanguageModel:
    """A loaded model in evaluation mode, with its processor."""

    name: str
    """Path of the base model, and of the adapter after a plus sign."""
    model: Model
    processor: ProcessorMixin
    device: str


def load_model(
    path: str, adapter: Path | None = None, *, image_max_pixels: int | None = None, device: Device = "auto"
) -> VisionLanguageModel:
    """The model at `path`, with a LoRA adapter where one is given; float32 on a CPU, bfloat16 on an accelerator.

    The processor comes from the adapter's folder where it has one: it carries the image budget of the training.
    Raises BackendError when a folder or a package is missing, ConfigError when the image budget cannot be kept.
    """
    place = pick_device(device)
    model = load_base(path, place)
    source = path
    if adapter is not None:
        model = _with_adapter(model, adapter)
        if (adapter / "processor_config.json").is_file() or (adapter / "preprocessor_config.json").is_file():
            source = str(adapter)
    processor = load_processor(source, model.config.model_type, image_max_pixels)
    name = path if adapter is None else f"{path}+{adapter}"
    return VisionLanguageModel(name=name, model=model.to(place).eval(), processor=processor, device=place)


def load_base(path: str, device: str) -> PreTrainedModel:
    """The base model alone, on the CPU until it is moved. Raises BackendError."""
    import torch
    from transformers import AutoModelForImageTextToText

    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    try:
        with quiet():
            return AutoModelForImageTextToText.from_pretrained(path, dtype=dtype)
    except (OSError, ValueError, ImportError, KeyError) as error:
        raise _unloadable("model", path, error) from None


def load_processor(path: str, model_type: str, image_max_pixels: int | None = None) -> ProcessorMixin:
    """The processor, its image settings lowered to the budget (they are saved with it). Raises BackendError."""
    from transformers import AutoProcessor, ProcessorMixin

    try:
        processor = AutoProcessor.from_pretrained(path)
    except (OSError, ValueError, ImportError, KeyError) as error:
        raise _unloadable("processor", path, error) from None
    if not isinstance(processor, ProcessorMixin):
        raise BackendError(
            f"found a {type(processor).__name__}, not a processor for images and text",
            where=path,
            fix="give a vision-language model whose folder holds its processor files",
        )
    if image_max_pixels is not None:
        images = processor.image_processor
        for key, value in family_of(model_type).image_budget(images.to_dict(), image_max_pixels).items():
            current = getattr(images, key)
            # Transformers keeps sizes in a class of its own, which a plain mapping would replace for good.
            setattr(images, key, type(current)(**value) if isinstance(value, Mapping) else value)
    return processor


def pick_device(device: Device) -> str:
    """ "cuda" where it is there and not refused, else "cpu". Raises BackendError for a GPU that is not there."""
    import torch

    if device == "cuda" and not torch.cuda.is_available():
        raise BackendError("no GPU is available", where="device", fix="use device: auto or cpu")
    return "cuda" if device != "cpu" and torch.cuda.is_available() else "cpu"


@contextmanager
def threads(n: int | None) -> Iterator[None]:
    """Run torch with `n` CPU threads, then restore what was set; None changes nothing."""
    import torch

    before = torch.get_num_threads()
    if n is not None:
        torch.set_num_threads(n)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def quiet() -> Iterator[None]:
    """Keep the libraries' own progress bars off the terminal; ours says how far it is.

    TRL still passes transformers the old name of activation checkpointing, and neither of them is the user's to mend.
    """
    import datasets
    from transformers.utils import logging

    bars = logging.is_progress_bar_enabled(), datasets.is_progress_bar_enabled()
    logging.disable_progress_bar()
    datasets.disable_progress_bars()
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*gradient_checkpointing", FutureWarning)
            yield
    finally:
        if bars[0]:
            logging.enable_progress_bar()
        if bars[1]:
            datasets.enable_progress_bars()


def render(processor: ProcessorMixin, text: str, n_images: int) -> str:
    """The prompt as the chat template writes it, up to the place where the answer begins."""
    rendered: str = processor.apply_chat_template(
        user_messages(text, n_images), tokenize=False, add_generation_prompt=True
    )
    return rendered


def encode(
    processor: ProcessorMixin, prompts: Sequence[str], images: Sequence[Sequence[object]]
) -> Mapping[str, torch.Tensor]:
    """Rendered prompts and their decoded images (PIL) as one left-padded batch.

    Every prompt of a batch has the same number of images: some processors take none only when the whole batch has none.
    Padding is on the left, whatever the processor was saved with: the last position is then the answer's.
    """
    batch: Mapping[str, torch.Tensor] = processor(
        images=[list(group) for group in images] if images and images[0] else None,
        text=list(prompts),
        padding=True,
        padding_side="left",
        return_tensors="pt",
        add_special_tokens=False,  # the chat template has written them
    )
    return batch


def option_ids(processor: ProcessorMixin, n_options: int) -> Mapping[str, int]:
    """Token id of each option letter where it stands in an answer, e.g. " A" after "Assistant:" (not that of "A").

    Raises S2PError when a template does not continue its own prompt, or when two letters share their first token.
    """
    tokenizer = processor.tokenizer
    start = render(processor, "x", 1)
    prompt: list[int] = tokenizer(start, add_special_tokens=False).input_ids
    found: dict[str, int] = {}
    for letter in LETTERS[:n_options]:
        messages = [*user_messages("x", 1), *completion_messages(letter)]
        full = processor.apply_chat_template(messages, tokenize=False)
        ids: list[int] = tokenizer(full, add_special_tokens=False).input_ids
        if ids[: len(prompt)] != prompt or len(ids) == len(prompt):
            raise S2PError(
                f"the chat template does not continue its own prompt: {start[-40:]!r} is not how {full[-60:]!r} begins",
                where="chat template",
                fix="use a template whose answer follows the generation prompt (for a thinking model: its plain mode)",
            )
        found[letter] = ids[len(prompt)]
    if len(set(found.values())) < len(found):
        raise S2PError(
            f"the option letters do not differ in their first token: {found}",
            where="tokenizer",
            fix="the letters are split behind a shared token here; score this model by generation instead",
        )
    wrong = {letter: tokenizer.decode([i]) for letter, i in found.items() if tokenizer.decode([i]).strip() != letter}
    if wrong:
        raise S2PError(f"these letters are not single tokens: {wrong}", where="tokenizer")
    return found


def placed(loaded: VisionLanguageModel, batch: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """A batch on the model's device, pixels in its precision."""
    moved = {key: value.to(loaded.device) for key, value in batch.items()}
    return {key: value.to(loaded.model.dtype) if value.is_floating_point() else value for key, value in moved.items()}


def last_logprobs(loaded: VisionLanguageModel, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Log-probability of every token of the vocabulary as the next one, float32, shape (batch, vocabulary)."""
    import torch

    with torch.inference_mode():
        logits = loaded.model(**placed(loaded, batch), logits_to_keep=1, use_cache=False).logits[:, -1]
    return torch.log_softmax(logits.float(), dim=-1)


def _with_adapter(model: PreTrainedModel, adapter: Path) -> PeftModel:
    from peft import PeftModel

    if not (adapter / "adapter_config.json").is_file():
        raise BackendError(
            "no adapter_config.json in this folder", where=str(adapter), fix="give the `out` folder of `s2p train`"
        )
    try:
        return PeftModel.from_pretrained(model, str(adapter))
    except (OSError, ValueError, RuntimeError, KeyError) as error:
        raise _unloadable("adapter", str(adapter), error) from None


def _unloadable(what: str, path: str, error: Exception) -> BackendError:
    lines = [line for line in str(error).splitlines() if line.strip()]
    reason = lines[0] if lines else type(error).__name__
    fix = "give a folder that `save_pretrained` wrote: model, tokenizer and processor files"
    if isinstance(error, ImportError):
        fix = "install the package that the message names"
    return BackendError(f"cannot load the {what}: {reason}", where=path, fix=fix)
