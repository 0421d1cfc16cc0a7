"""Factorised and grouped LSTM cells: how many parameters does a recurrent layer need?

    launch/local.sh run factorised --preset demo --seeds 3

About 4 minutes on 2 CPU cores for each seed.

An LSTM computes its gates from the input and its last state by one matrix, W [x; h] + b. Kuchaiev
and Ginsburg (2017) have two cells with fewer parameters. In F-LSTM, W is a product of two matrices,
W_2 W_1, whose rank r is here half of the width, as in their F512, so a layer has 3/8 of the
parameters. In G-LSTM, x and h are divided into k groups, and each group has a matrix of its own: W
is block-diagonal, with 1/k of the parameters. "LSTM, narrower" has about as many parameters in its
cells as G-LSTM of 2 groups.

Base is the Transformer with pre-norm. The recurrent rows have layers of both directions in the
encoder and attention before the output, as "LSTM, dot" in table2.py. Departures from the paper:
translation in place of language modelling, and no projection of the state, so that n = p = d_model.
"""

import flax.linen as nn
import jax.numpy as jnp

from t2t_jax.errors import UsageError
from t2t_jax.models.layers import add_bias, parameter
from t2t_jax.models.recurrent import LSTM
from t2t_jax.study import Row, cell, study


def of_factors(d_in, d):
    return (d_in + d) * (d // 2) + (d // 2) * 4 * d


def of_groups(k):
    return lambda d_in, d: 4 * d * (d_in + d) // k


@cell("f_lstm", "LSTM with a product of two matrices of rank d / 2", products=of_factors)
class Factorised(LSTM):
    """The gates are W_2 W_1 [x; h] + b, W_1 [d_in + width, r] and W_2 [r, 4, width]."""

    def setup(self):
        glorot = nn.initializers.glorot_uniform()
        init = nn.initializers.variance_scaling(1, "fan_avg", "uniform", 0, 2, 1)
        inputs, rank = self.d_in + self.width, self.width // 2
        of_W_1 = "d_hidden", "rank"
        self.W_1 = parameter(self, "W_1", (inputs, rank), of_W_1, glorot, jnp.float32)
        sizes, axes = (rank, 4, self.width), ("rank", "gates", "d_model")
        self.W_2 = parameter(self, "W_2", sizes, axes, init, jnp.float32)
        self.b = parameter(self, "b", sizes[1:], axes[1:], self.first_b, jnp.float32)

    def project(self, x):
        return x @ self.W_1[: self.d_in].astype(x.dtype)  # [..., r]

    def advance(self, z, carry):
        y = z + carry[0].astype(z.dtype) @ self.W_1[self.d_in :].astype(z.dtype)
        u = jnp.einsum("br,rgw->bgw", y, self.W_2.astype(z.dtype))
        return self.recurrence(self.b[None], u.astype(jnp.float32), carry)


@cell("g2_lstm", "LSTM of 2 groups of features", products=of_groups(2))
class Grouped(LSTM):
    """Group j of the gates is W^j x^j + U^j h^j + b^j, of group j of the input and of the state."""

    groups = 2

    def setup(self):
        k = self.groups
        if self.width % k or self.d_in % k:
            raise UsageError(f"{k} groups do not divide a width of {self.width}: choose another.")
        init = nn.initializers.variance_scaling(1, "fan_avg", "uniform", 1, 3, (0, 2))
        axes, of_group = ("groups", "d_hidden", "gates", "d_model"), (4, self.width // k)
        W, U = (k, self.d_in // k, *of_group), (k, self.width // k, *of_group)
        self.W = parameter(self, "W", W, axes, init, self.dtype)
        self.U = parameter(self, "U", U, axes, init, jnp.float32)
        self.b = parameter(self, "b", (4, self.width), axes[2:], self.first_b, jnp.float32)

    def project(self, x):
        return add_bias(self.by_group(x, self.W), self.b)

    def advance(self, z, carry):
        u = self.by_group(carry[0].astype(z.dtype), self.U.astype(z.dtype))
        return self.recurrence(z.astype(jnp.float32), u.astype(jnp.float32), carry)

    def by_group(self, x, W):
        """x [..., d] and W [k, d / k, 4, width / k] -> [..., 4, width]."""
        groups = x.reshape(*x.shape[:-1], self.groups, -1)
        y = jnp.einsum("...ki,kign->...gkn", groups, W)
        return y.reshape(*y.shape[:-2], self.width)


@cell("g4_lstm", "LSTM of 4 groups of features", products=of_groups(4))
class Grouped4(Grouped):
    groups = 4


lstm = dict(
    architecture="recurrent", N=4, d_model=768, encoder_direction="both",
    attention_feeding="output", cross_attention="dot_product",
)  # fmt: skip


# fmt: off
@study("Factorised and grouped LSTM", split="test", base=dict(norm_placement="pre"),
       columns="architecture cell N d_model")
def factorised():
    return [
        Row("base"),
        Row("LSTM",             lstm),
        Row("LSTM, narrower",   lstm | dict(d_model=544)),
        Row("F-LSTM",           lstm | dict(cell="f_lstm")),
        Row("G-LSTM, 2 groups", lstm | dict(cell="g2_lstm")),
        Row("G-LSTM, 4 groups", lstm | dict(cell="g4_lstm")),
    ]
