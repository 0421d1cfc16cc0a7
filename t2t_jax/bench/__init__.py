"""What things cost on the device at hand: medians of interleaved rounds, kept as JSON."""

NAIVE = "additive_naive"  # additive attention with an array [T, S, d]: what the real one saves
CONTENDER = "t2t_jax/bench/contenders/t2t.py"  # how any checkout of this project is raced
TASKS = {  # of `bench peers`: what contenders are asked for, the size, and batch tokens or beam
    "train-tiny": ("train", "tiny", "2048"),
    "train-base": ("train", "base", "2048"),
    "greedy-tiny": ("translate", "tiny", "1"),
    "beam4-tiny": ("translate", "tiny", "4"),
}
