"""What things cost on the device at hand: medians of interleaved rounds, kept as JSON."""

NAIVE = "additive_naive"  # additive attention with an array [T, S, d]: what the real one saves
