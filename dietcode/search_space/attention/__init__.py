"""Attention in one block: ``problem``, and ``memory`` (its tensors and strides in generated code)."""
