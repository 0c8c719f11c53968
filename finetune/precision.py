"""Which numbers a training uses, decided by what the machine has."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    import torch

Precision: TypeAlias = Literal["auto", "bf16", "fp32"]


def use_bf16(precision: Precision, device: str) -> bool:
    """Whether to train under bfloat16 autocast.

    Auto says yes on an accelerator, and on a CPU with bfloat16 instructions; on one without them autocast emulates
    bfloat16 and was measured seven times slower than float32.
    """
    import torch

    if precision != "auto":
        return precision == "bf16"
    return device == "cuda" or torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()


@contextmanager
def float32_attention(active: bool) -> Iterator[None]:
    """Run scaled-dot-product attention in float32 inside a bfloat16 autocast on a CPU, where its kernels are faster.

    Every attention of transformers' `sdpa` looks the function up in `torch.nn.functional` when it is called, so it is
    exchanged there and put back at the end.
    """
    import torch
    from torch.nn import functional

    original = functional.scaled_dot_product_attention

    def attention(  # noqa: PLR0913 - torch's own signature
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> torch.Tensor:
        mask = attn_mask.float() if attn_mask is not None and attn_mask.is_floating_point() else attn_mask
        with torch.autocast("cpu", enabled=False):
            result = original(
                query.float(),
                key.float(),
                value.float(),
                mask,
                dropout_p,
                is_causal,
                scale=scale,
                enable_gqa=enable_gqa,
            )
        return result.to(query.dtype)

    if not active:
        yield
        return
    functional.scaled_dot_product_attention = attention
    try:
        yield
    finally:
        functional.scaled_dot_product_attention = original
