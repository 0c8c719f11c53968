"""Direct preference optimisation: the right letter against the wrong one that is most like it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from finetune.pairs import preference_pairs
from finetune.parts import Parts, shared_arguments
from finetune.watching import watched

if TYPE_CHECKING:
    from transformers import Trainer

logger = logging.getLogger(__name__)


def dpo_trainer(parts: Parts) -> Trainer:
    """TRL's DPOTrainer over `finetune.pairs`; the reference is the model (or adapter) that training starts from."""
    from trl import DPOConfig, DPOTrainer

    options = parts.config.dpo
    pairs, kinds = preference_pairs(parts.rows, parts.config.seed)
    logger.info("rejected answers: %s", dict(kinds))
    dev = None if parts.dev is None else preference_pairs(parts.dev, parts.config.seed)[0]
    arguments = DPOConfig(**shared_arguments(parts), beta=options.beta, loss_type=[options.loss], max_length=None)
    return watched(DPOTrainer, parts.watch)(
        model=parts.model,
        processing_class=parts.processor,
        args=arguments,
        train_dataset=pairs,
        eval_dataset=dev,
        peft_config=parts.lora,
    )
