"""Sentence pairs in, device-ready batches out. Nothing in this room imports jax."""
