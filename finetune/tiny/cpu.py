"""Arithmetic on CPUs: bf16 where the hardware multiplies it, and attention in fp32 all the same."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from transformers import LlavaForConditionalGeneration


def has_bf16() -> bool:
    """Whether this CPU multiplies bf16 in hardware; without, autocast is ten times slower than fp32."""
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


@contextmanager
def float32_attention(model: LlavaForConditionalGeneration) -> Iterator[None]:
    """Attention in fp32 inside bf16 autocast: on CPUs bf16 attention is slower, bf16 matrix products are faster."""
    from transformers import AttentionInterface
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

    def attend(
        module: torch.nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        **options: float | bool | None,
    ) -> tuple[Tensor, None]:
        with torch.autocast("cpu", enabled=False):
            out, _ = sdpa_attention_forward(
                module, query.float(), key.float(), value.float(), attention_mask, **options
            )
        return out.to(query.dtype), None

    AttentionInterface.register("sdpa_float32", attend)
    AttentionMaskInterface.register("sdpa_float32", sdpa_mask)
    model.set_attn_implementation("sdpa_float32")
    try:
        yield
    finally:
        model.set_attn_implementation("sdpa")
