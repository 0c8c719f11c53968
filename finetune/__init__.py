"""Dataset to better model to proof: LoRA training, evaluation, comparison."""
