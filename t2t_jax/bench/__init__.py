"""Benchmarks of speed and memory on this device; results are stored as JSON and text."""

NAIVE = "additive_naive"  # additive attention that builds the array [B, h, T, S, d], for comparison
