"""What each computation of `t2t_jax.ops` gains over its plain definition, value and gradients.

    launch/local.sh experiments/tools/ops.py        2 minutes on 2 CPU cores

Writes experiments/results/ops: the median time of both in alternating rounds, the median of their
ratio and the memory of their temporaries, at the sizes of the base model with 2,048 tokens a side.
Expected on two CPU cores: every one but the NaN guard is faster than its plain definition; additive
scores also need 1/64 of the memory. The NaN guard is compared with attention without it, which
gives its cost.
"""

import statistics
import timeit
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from t2t_jax.bench import keep
from t2t_jax.environment import environment
from t2t_jax.ops import additive_scores, dropout, matmul, nan_guard, target_logit, top_k
from t2t_jax.study.typeset import pipe_table
from t2t_jax.terminal import say

RESULTS = Path(__file__).parents[1] / "results" / "ops"
ROUNDS = 9
B, T, H, D_K, D_MODEL, D_FF, V, BEAM = 32, 64, 8, 64, 512, 2048, 37_000, 4


def cases():
    """Returns (fast, plain, arguments) by name; both are functions of the arguments."""

    def drawn(*shape):
        return jax.random.normal(jax.random.key(len(shape)), shape)

    def attend(q, k, v):
        causal = jnp.tri(T, dtype=bool)[None, None]
        scores = jnp.where(causal, jnp.einsum("bthd,bshd->bhts", q, k), -1e9)
        return jnp.einsum("bhts,bshd->bthd", jax.nn.softmax(scores), v)

    target = jax.random.randint(jax.random.key(0), (B, T), 0, V)
    key, lengths = jax.random.key(1), jnp.ones((B, T), bool)
    heads = (B, T, H, D_K)
    return {
        f"matmul, x [{B}, {T}, {D_MODEL}] W [{D_MODEL}, {D_FF}]": (
            matmul.matmul,
            matmul.plain,
            (drawn(B, T, D_MODEL), drawn(D_MODEL, D_FF)),
        ),
        f"matmul, the logits of {V:,} subwords": (
            matmul.matmul,
            matmul.plain,
            (drawn(B, T, D_MODEL), drawn(D_MODEL, V)),
        ),
        f"dropout of [{B}, {T}, {D_MODEL}]": (
            lambda x: dropout.dropout(x, 0.1, key),
            lambda x: dropout.plain(x, 0.1, key),
            (drawn(B, T, D_MODEL),),
        ),
        f"target_logit of {V:,} subwords": (
            lambda z: target_logit.target_logit(z, target),
            lambda z: target_logit.plain(z, target),
            (drawn(B, T, V),),
        ),
        f"top_k, {BEAM} of [{4 * T}, {V:,}], value alone": (
            lambda x: top_k.top_k(x, BEAM)[0],
            lambda x: top_k.plain(x, BEAM)[0],
            (drawn(4 * T, V),),
        ),
        f"additive_scores, {B} x {H} heads, {T} by {T}": (
            additive_scores.additive_scores,
            additive_scores.plain,
            (drawn(D_K, B, H, T), drawn(D_K, B, H, T), drawn(D_K, H)),
        ),
        f"nan_guard around attention, {B} x {H} heads, {T} by {T}": (
            lambda q, k, v: nan_guard.nan_guard(attend, q, k, v, lengths),
            attend,
            (drawn(*heads), drawn(*heads), drawn(*heads)),
        ),
    }


def program(function, arguments, value_alone):
    """Returns a compiled program, and the bytes of its temporaries."""

    def run(g, *x):
        if value_alone:
            return function(*x)
        out, back = jax.vjp(function, *x)
        return out, back(g)

    out = jax.eval_shape(function, *arguments)
    given = (jnp.ones(out.shape, out.dtype), *arguments)
    compiled: Any = jax.jit(run).lower(*given).compile()
    used = compiled.memory_analysis().temp_size_in_bytes
    return lambda: jax.block_until_ready(compiled(*given)), used


def measure():
    """Returns seconds (medians), their ratio and bytes of temporaries, by name."""
    results = {}
    for name, (fast, plain, arguments) in cases().items():
        programs = [program(f, arguments, "value alone" in name) for f in (fast, plain)]
        seconds: list[list[float]] = [[], []]
        for _ in range(ROUNDS + 1):
            for taken, (run, _) in zip(seconds, programs, strict=True):
                taken.append(timeit.timeit(run, number=1))
        ratios = [y / x for x, y in zip(*(taken[1:] for taken in seconds), strict=True)]
        results[name] = {
            "seconds": [statistics.median(taken[1:]) for taken in seconds],
            "times as fast": statistics.median(ratios),
            "bytes": [used for _, used in programs],
        }
        say(f"{name}: {results[name]['times as fast']:.2f} times as fast")
    return results


def table(results):
    """Returns Markdown, a row for each computation."""
    heads = ["computation", "ms", "plain, ms", "times as fast", "MiB", "plain, MiB"]
    lines = [
        [
            name,
            *(f"{1e3 * seconds:,.1f}" for seconds in x["seconds"]),
            f"{x['times as fast']:.2f}",
            *(f"{used / 2**20:,.0f}" for used in x["bytes"]),
        ]
        for name, x in results.items()
    ]
    return pipe_table(heads, lines)


def main():
    results = measure()
    keep(RESULTS / "ops.md", {"ops": results, "environment": environment()}, table(results))


if __name__ == "__main__":
    main()
