"""What pretraining minimises: the answers, dense labels of the tower's patches, and where attention looks.

All heads of this module are thrown away afterwards. The depth head stands in for the depth that the features of large
vision towers are known to hold (El Banani et al. 2024); with `depth=False` there is none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from finetune.tiny.build import GRID, WIDTH
from finetune.tiny.frames import IGNORED, PATCHES, PatchLabels
from finetune.tiny.packing import Meaning, Packed, Pointer
from finetune.tiny.wordings import COLOURS, MARKS, NAMES

if TYPE_CHECKING:
    from transformers import LlavaForConditionalGeneration
    from transformers.models.llama import LlamaModel

_N, _C, _M = len(NAMES), len(COLOURS) + 1, len(MARKS) + 1
_FOLD = PATCHES // GRID
_NAME_WEIGHTS = {"floor": 0.15, "wall": 0.15, "ceiling": 0.15, "window": 0.3}
"""Patches of objects count in full: walls and floor would drown them."""
_NO_COLOUR_WEIGHT = 0.1
_MARK_WEIGHT = 10.0
_UNDER_WEIGHT = 0.7


@dataclass(frozen=True, kw_only=True)
class Weights:
    """Factors of the parts of the loss."""

    answer: float = 2.0
    dense: float = 0.5
    marks: float = 0.5
    depth: float = 0.3
    pointer: float = 0.3
    meaning: float = 0.5


class AuxiliaryHeads(nn.Module):
    """Linear readings of the tower's 64 tokens, and of the words of the question inside the decoder."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Linear(WIDTH, _FOLD * _FOLD * (_N + _C + _M + 1))
        self.under = nn.Linear(WIDTH, _N + 1 + _C + 1)
        self.word = nn.Linear(WIDTH, _N + _C)
        self.verdict = nn.Linear(WIDTH, 2)


@dataclass(kw_only=True)
class _Projected:
    """Queries and keys of one decoder layer, (B, T, width), before the rotary embedding."""

    head_dim: int
    scaling: float
    query: Tensor | None = None
    key: Tensor | None = None

    def keep_query(self, module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        self.query = output

    def keep_key(self, module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        self.key = output


def dense_losses(heads: AuxiliaryHeads, tokens: Tensor, labels: Sequence[PatchLabels]) -> dict[str, Tensor]:
    """Name and colour of every patch, marks and what lies under them, log depth. tokens: (B, 64, WIDTH)."""
    truth = {
        field: torch.from_numpy(np.stack([getattr(label, field) for label in labels]))
        for field in ("name", "colour", "mark", "name_under", "colour_under", "log_depth")
    }
    scores = heads.patch(tokens).float().view(len(labels), GRID, GRID, _FOLD, _FOLD, -1)
    name, colour, mark, depth = scores.transpose(2, 3).flatten(0, 4).split([_N, _C, _M, 1], 1)
    name_weights = torch.tensor([_NAME_WEIGHTS.get(n, 1.0) for n in NAMES])
    colour_weights = torch.tensor([_NO_COLOUR_WEIGHT] + [1.0] * len(COLOURS))
    mark_weights = torch.tensor([1.0] + [_MARK_WEIGHT] * len(MARKS))
    known = ~truth["log_depth"].flatten().isnan()
    return {
        "dense": F.cross_entropy(name, truth["name"].flatten(), name_weights, ignore_index=IGNORED)
        + F.cross_entropy(colour, truth["colour"].flatten(), colour_weights, ignore_index=IGNORED),
        "marks": F.cross_entropy(mark, truth["mark"].flatten(), mark_weights)
        + _UNDER_WEIGHT * _under_loss(heads.under(tokens).float().flatten(0, 1), truth),
        "depth": (depth[:, 0][known] - truth["log_depth"].flatten()[known]).abs().mean(),
    }


def _under_loss(scores: Tensor, truth: Mapping[str, Tensor]) -> Tensor:
    """Name and colour under a mark, 0 for a token without one: makes the conjunction of mark and object linear."""
    marked = _tokenwise(truth["mark"]) > 0
    if not marked.any():
        return scores.new_zeros(())
    total = scores.new_zeros(())
    for part, field in zip(scores.split([_N + 1, _C + 1], 1), ("name_under", "colour_under"), strict=True):
        target = torch.where(marked, _tokenwise(truth[field]) + 1, 0)
        total = total + F.cross_entropy(part[marked], target[marked]) + F.cross_entropy(part[~marked], target[~marked])
    return total


def _tokenwise(patches: Tensor) -> Tensor:
    """(B, patches) -> (B * tokens,), the largest of each token's patches."""
    return patches.view(-1, GRID, _FOLD, GRID, _FOLD).amax((2, 4)).flatten()


def question_losses(
    model: LlavaForConditionalGeneration, heads: AuxiliaryHeads, tokens: Tensor, packed: Packed
) -> dict[str, Tensor]:
    """Cross-entropy of the answers, pointer losses and readings of the words. tokens: the tower's (B, 64, WIDTH)."""
    decoder = model.get_decoder()
    features = model.model.multi_modal_projector(tokens)
    embedded = model.get_input_embeddings()(packed.input_ids)
    slots = (packed.input_ids == model.config.image_token_id)[..., None].expand_as(embedded)
    embedded = embedded.masked_scatter(slots, features.to(embedded.dtype))
    bias = attention_bias(packed.visible)
    with _projections(decoder) as projected:
        states = decoder(
            inputs_embeds=embedded,
            attention_mask=bias,
            position_ids=packed.position_ids,
            use_cache=False,
            output_hidden_states=True,
        )
    rotary = decoder.rotary_emb(embedded, packed.position_ids)
    answers = packed.labels[:, 1:] != IGNORED
    logits = model.lm_head(states.last_hidden_state[:, :-1][answers]).float()
    pointing = [_pointer_loss(projected[p.layer], rotary, bias, p) for p in packed.pointers]
    return {
        "answer": F.cross_entropy(logits, packed.labels[:, 1:][answers]),
        "pointer": torch.stack(pointing).sum(),
        "meaning": _meaning_loss(heads, states.hidden_states, packed.meaning),
    }


def attention_bias(visible: Tensor) -> Tensor:
    """(B, T, T) bool -> additive float mask (B, 1, T, T)."""
    return torch.zeros(visible.shape).masked_fill(~visible, torch.finfo(torch.float32).min)[:, None]


@contextmanager
def _projections(decoder: LlamaModel) -> Iterator[list[_Projected]]:
    """Collects what every layer's attention makes of its input, while the decoder runs."""
    collected = [
        _Projected(head_dim=layer.self_attn.head_dim, scaling=layer.self_attn.scaling) for layer in decoder.layers
    ]
    hooks = []
    for layer, projected in zip(decoder.layers, collected, strict=True):
        hooks.append(layer.self_attn.q_proj.register_forward_hook(projected.keep_query))
        hooks.append(layer.self_attn.k_proj.register_forward_hook(projected.keep_key))
    try:
        yield collected
    finally:
        for hook in hooks:
            hook.remove()


def _pointer_loss(projected: _Projected, rotary: tuple[Tensor, Tensor], bias: Tensor, pointer: Pointer) -> Tensor:
    """Mean of -log of the attention that each query gives to its targets, before values are mixed."""
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

    if projected.query is None or projected.key is None:
        raise RuntimeError("the decoder has not run")
    chosen = list(pointer.heads)
    shape = (*projected.query.shape[:2], -1, projected.head_dim)
    with torch.autocast("cpu", enabled=False):
        query = projected.query.view(shape)[:, :, chosen].transpose(1, 2).float()
        key = projected.key.view(shape)[:, :, chosen].transpose(1, 2).float()
        query, key = apply_rotary_pos_emb(query, key, *rotary)
        # Only the asked queries, padded to equally many a sequence: all T x T would cost as much as the layer itself.
        few = query.new_zeros(len(query), int(pointer.slots.max()) + 1, len(chosen), projected.head_dim)
        few = few.index_put((pointer.rows, pointer.slots), query[pointer.rows, :, pointer.queries])
        scores = few.transpose(1, 2) @ key.transpose(2, 3) * projected.scaling
        asked = scores[pointer.rows, :, pointer.slots] + bias[pointer.rows, :, pointer.queries]
        hit = asked.masked_fill(~pointer.targets[:, None], torch.finfo(torch.float32).min).logsumexp(-1)
        return (asked.logsumexp(-1) - hit).mean()


def _meaning_loss(heads: AuxiliaryHeads, hidden: Sequence[Tensor], meaning: Meaning) -> Tensor:
    """Name and colour at a word after layer 0, and whether the sought object is there after layer 1."""
    at = (meaning.rows, meaning.queries)
    name, colour = heads.word(hidden[1][at]).float().split([_N, _C], 1)
    parts = (
        (name, meaning.names),
        (colour, meaning.colours),
        (heads.verdict(hidden[2][at]).float(), meaning.there),
    )
    terms = [
        F.cross_entropy(scores, target, ignore_index=IGNORED) for scores, target in parts if (target != IGNORED).any()
    ]
    return torch.stack(terms).sum()
