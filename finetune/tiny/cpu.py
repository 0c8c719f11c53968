"""Arithmetic on CPUs: bf16 where the hardware multiplies it, and attention in fp32 all the same."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor


def has_bf16() -> bool:
    """Whether this CPU multiplies bf16 in hardware; without, autocast is many times slower than fp32."""
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


@contextmanager
def float32_attention() -> Iterator[None]:
    """Attention in fp32 inside bf16 autocast: on CPUs bf16 attention is slower, bf16 matrix products are faster."""
    original = F.scaled_dot_product_attention

    def attend(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
    ) -> Tensor:
        with torch.autocast("cpu", enabled=False):
            return original(
                query.float(),
                key.float(),
                value.float(),
                attn_mask=attn_mask,
                dropout_p=dropout_p,
                is_causal=is_causal,
                scale=scale,
            ).to(query.dtype)

    # transformers looks the function up at every call and offers no hook of its own without a bag of keywords.
    F.scaled_dot_product_attention = attend  # type: ignore[assignment]
    try:
        yield
    finally:
        F.scaled_dot_product_attention = original
