"""Benchmarks of speed and memory on the device at hand; results are kept as JSON and text."""

NAIVE = "additive_naive"  # additive attention that builds the array [B, h, T, S, d], for comparison
