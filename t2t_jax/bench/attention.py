"""Time and memory of every mechanism against the length n: value and gradient, one sequence."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax.core import meta

from t2t_jax.attention.dense import Dense
from t2t_jax.attention.parameters import PerHead
from t2t_jax.attention.registry import MECHANISMS, build, parse
from t2t_jax.attention.visibility import Visibility
from t2t_jax.bench import NAIVE
from t2t_jax.bench.race import ROUNDS, Program, compiled, exponent, race
from t2t_jax.bench.race import draw as draw_race
from t2t_jax.environment import environment

LENGTHS = (256, 512, 1024, 2048, 4096, 8192, 16384)
B, H, D = 1, 8, 64
BASE = "scaled_dot_product"


class AdditiveNaive(Dense):
    """`t2t_jax.bench.NAIVE`."""

    def setup(self) -> None:
        self.W_q, self.W_k = PerHead(("d_k", "d_hidden")), PerHead(("d_k", "d_hidden"))
        self.v = PerHead(("d_hidden",))

    def scores(self, q: jax.Array, keys: jax.Array, t: jax.Array, s: jax.Array) -> jax.Array:
        d = q.shape[-1]
        a = jnp.einsum("bthd,hde->bhte", q, self.W_q(q, d, d))
        c = jnp.einsum("bhsd,hde->bhse", keys, self.W_k(q, d, d))
        return jnp.einsum(
            "bhtse,he->bhts", jnp.tanh(a[:, :, :, None] + c[:, :, None]), self.v(q, d)
        )


def default(n: int) -> dict[str, str]:
    """Every mechanism at length n as a config names it: windows of 64, strides of sqrt(n)."""
    root = max(8, math.isqrt(n))
    options = {
        "local": ":w=64",
        "local_p": ":w=64",
        "sparse_strided": f":l={root}",
        "sparse_fixed": f":l={root},c=1",
        "sparse_random": ":b=32,r=2",
    }
    return {name: name + options.get(name, "") for name in (*MECHANISMS, NAIVE)}


def measure(
    names: Sequence[str], lengths: Sequence[int], seconds: float, say: Callable[[str], object]
) -> dict[str, Any]:
    """Runs the race.

    Args:
      names: mechanisms, with options or with those of `default`.
      seconds: the longest that a call may be expected to take.

    Returns:
      What is kept as JSON and printed by `table`: shapes, environment, and for each mechanism,
      causal where it can be, at each n seconds and bytes of temporaries, and what they grow with.
    """
    found = race(names, lengths, seconds, _compile, say)
    mechanisms = {
        name: {"causal": _causal(name), "at": at}
        | {f"{what}_exponent": exponent(at, what) for what in ("seconds", "bytes")}
        for name, at in found.items()
        if at
    }
    shapes = {
        "B": B,
        "h": H,
        "d_k": D,
        "d_v": D,
        "dtype": jnp.dtype(_dtype()).name,
        "rounds": ROUNDS,
    }
    return {**shapes, "mechanisms": mechanisms, "environment": environment()}


def table(found: Mapping[str, Any]) -> list[str]:
    """Lines: seconds, how many times faster than the paper's attention, memory, and exponents."""
    lengths = sorted({x["n"] for m in found["mechanisms"].values() for x in m["at"]})
    base = {x["n"]: x for x in found["mechanisms"].get(BASE, {"at": []})["at"]}
    out = [
        f"value and gradient, B = {found['B']}, h = {found['h']}, d_k = d_v = {found['d_k']}, "
        f"{found['dtype']}: ms (times as fast as {BASE}; MiB of temporaries)",
        f"{'n':28}" + "".join(f"{n:>24,}" for n in lengths) + "   time ~  memory ~",
    ]
    for name, m in found["mechanisms"].items():
        cells = {x["n"]: x for x in m["at"]}
        row = f"{name + ('' if m['causal'] else ' (not causal)'):28}"
        for n in lengths:
            cell = ""
            if x := cells.get(n):
                ratio = f"{base[n]['seconds'] / x['seconds']:.1f}x; " if n in base else ""
                cell = f"{x['seconds'] * 1e3:,.1f} ({ratio}{x['bytes'] / 2**20:,.0f})"
            row += f"{cell:>24}"
        grown = (m["seconds_exponent"], m["bytes_exponent"])
        out.append(row + "".join("         " if p is None else f"   n^{p:.2f}" for p in grown))
    return out


def draw(found: Mapping[str, Any], path: Any) -> None:
    """Time and memory against n: PATH.png and PATH.svg."""
    device = found["environment"]["device"]
    title = f"Value and gradient of attention, B = {B}, h = {H}, d = {D}, on {device}"
    raced = found["mechanisms"]
    powers = {name: (m["seconds_exponent"], m["bytes_exponent"]) for name, m in raced.items()}
    draw_race({name: m["at"] for name, m in raced.items()}, powers, title, path)


def _compile(name: str, n: int) -> Program:
    mechanism = AdditiveNaive() if name == NAIVE else build(default(n).get(name, name))
    q, k, v, g = (
        jax.random.normal(key, (B, n, H, D), _dtype())
        for key in jax.random.split(jax.random.key(0), 4)
    )
    visibility = Visibility(causal=_causal(name))
    few = (x[:, :8] for x in (q, k, v))
    variables = meta.unbox(mechanism.init(jax.random.key(1), *few, visibility))

    def value(variables: Any, q: jax.Array, k: jax.Array, v: jax.Array, g: jax.Array) -> jax.Array:
        out: Any = mechanism.apply(variables, q, k, v, visibility)
        return (out * g).sum(dtype=jnp.float32)

    arguments = (variables, q, k, v, g)
    return compiled(jax.value_and_grad(value, (0, 1, 2, 3)), *arguments)


def _causal(name: str) -> bool:
    return name == NAIVE or "decoder" in MECHANISMS[parse(name)[0]].roles


def _dtype() -> Any:
    return jnp.float32 if jax.default_backend() == "cpu" else jnp.bfloat16
