"""Mixtures of experts: does a layer of several feed-forward networks help at equal FLOPs?

    launch/local.sh run mixture --preset demo --seeds 3

About 6 minutes on 2 CPU cores for each seed.

Base is the paper's with pre-norm. In "mixture", each feed-forward layer has 4 experts of base's
size, of which a router chooses 2 for each token (Shazeer et al. 2017): it has four times the
parameters of base's layer, and 2.7 times its FLOPs in short sentences, as every expert computes
a capacity of 1.25 times its share of the tokens, rounded up. "mixture, FLOPs of base" has narrower
experts. Two rows without experts have the FLOPs or the parameters of "mixture", and a wider d_ff.

The output is equation 1 of Shazeer et al., y = sum_i G(x)_i E_i(x), with equations 3 and 5 without
noise: G(x) = softmax(KeepTopK(x W_r, K)). In training, an expert takes the first tokens of each
sentence up to its capacity, and drops the others (Lepikhin et al. 2021, section 2.2). In evaluation
it takes all, so that decoding equals teacher forcing. In place of Shazeer's losses of importance
and load, the balancing loss is equation 4 of Fedus et al. (2022). On a mesh, `tensor` divides the
experts.
"""

import math
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from t2t_jax import config
from t2t_jax.attention.visibility import length_mask
from t2t_jax.models.layers import parameter
from t2t_jax.study import Row, feed_forward, study

E, K = 4, 2  # experts, and experts of a token
CAPACITY, BALANCE = 1.25, 0.01  # the first is relative to experts with equally many tokens


def capacity(L: int) -> int:
    return min(L, math.ceil(CAPACITY * K * L / E))


def products(c: config.Model, L: int) -> int:
    """The router, and two matrices of each expert for as many tokens as its capacity."""
    return L * c.d_model * E + 2 * E * capacity(L) * c.d_model * c.d_ff


def mup(c: config.Model) -> dict[tuple[str, ...], float]:
    r = c.mup_width / c.d_model
    return {
        ("d_model", "experts"): r,
        ("experts", "d_model", "d_ff"): r,
        ("experts", "d_ff", "d_model"): 4 * c.mup_width / c.d_ff,
    }


@feed_forward("mixture", "the K of E experts that a router chooses", products=products, mup=mup)
class Mixture(nn.Module):
    c: config.Model
    dtype: Any

    @nn.compact
    def __call__(self, x, train=False, lengths=None):
        """x [B, L, d_model] -> the same."""
        (B, L, d), f = x.shape, self.c.d_ff
        init = nn.initializers.variance_scaling(1, "fan_avg", "uniform", batch_axis=0)
        glorot = nn.initializers.glorot_uniform()
        W_r = parameter(self, "W_r", (d, E), ("d_model", "experts"), glorot, jnp.float32)
        W_1 = parameter(self, "W_1", (E, d, f), ("experts", "d_model", "d_ff"), init, self.dtype)
        W_2 = parameter(self, "W_2", (E, f, d), ("experts", "d_ff", "d_model"), init, self.dtype)

        z = x.astype(jnp.float32) @ W_r  # [B, L, E]
        present = jnp.ones((B, L), bool) if lengths is None else length_mask(lengths, L)
        kept, experts = jax.lax.top_k(z, K)  # [B, L, K]
        weights, p = jax.nn.softmax(kept), jax.nn.softmax(z)
        chosen = jax.nn.one_hot(experts, E) * present[..., None, None]  # [B, L, K, E]
        routed, likely = chosen.sum(2), p * present[..., None]  # [B, L, E]
        share, mean = (z.sum((0, 1)) / jnp.maximum(present.sum(), 1) for z in (routed, likely))
        self.sow("losses", "balance", BALANCE * E / K * (share * mean).sum())

        C = capacity(L) if train else L
        before = (jnp.cumsum(chosen.reshape(B, L * K, E), 1) - 1).reshape(chosen.shape)
        place = (before * chosen).sum(-1).astype(int)  # in the queue of the expert
        takes = (place < C) & present[..., None]
        slots = jnp.where(takes, experts * C + place, E * C).reshape(B, L * K)

        def compute(x, slots):
            """Tokens [L, d] in the slots [L * K] of the experts -> their outputs [L * K, d]."""
            queues = jnp.zeros((E * C, d), x.dtype).at[slots].add(x.repeat(K, 0), mode="drop")
            hidden = jax.nn.relu(jnp.einsum("ecd,edf->ecf", queues.reshape(E, C, d), W_1))
            y = jnp.einsum("ecf,efd->ecd", hidden, W_2).reshape(E * C, d)
            return y.at[slots].get(mode="fill", fill_value=0)

        y = jax.vmap(compute)(x, slots).reshape(B, L, K, d)
        return jnp.einsum("blk,blkd->bld", weights.astype(x.dtype), y)


# fmt: off
@study("Mixtures of experts", split="test", base=dict(norm_placement="pre"),
       columns="feed_forward d_ff")
def mixture():
    return [
        Row("base"),
        Row("mixture",                 dict(feed_forward="mixture")),
        Row("mixture, FLOPs of base",  dict(feed_forward="mixture", d_ff=768)),
        Row("FLOPs of mixture",        dict(d_ff=5440)),
        Row("parameters of mixture",   dict(d_ff=8192)),
    ]
