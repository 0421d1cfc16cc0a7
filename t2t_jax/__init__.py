"""Ablations of the Transformer in JAX and Flax, after "Attention Is All You Need"."""
