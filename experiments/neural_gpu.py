"""The Extended Neural GPU: does an active memory find algorithms that hold for longer inputs?

    launch/local.sh run neural_gpu --preset diagnostic --seeds 1 [--corpus copy | addition]

It takes about 12 minutes on 2 CPU cores for each seed. Sequences of up to 8 of 5 symbols are
reversed; numbers of up to 4 digits in base 4, the lowest first, are
added. Tests: 1, 2, 4 times as long.

The state of a Neural GPU (Kaiser and Sutskever 2016, section 2) is an image of w x n positions with
m = d_model features. Its first row starts as the n embedded words of the source. N convolutional
gated recurrent units in turn transform the whole image, n times:

    CGRU(s) = u s + (1 - u) tanh(U * (r s) + B),  u = sigmoid(U' * s + B'),  r likewise

For each word of the target, the decoder of Kaiser and Bengio (2016) transforms it once more, by
units that also read a tape p whose first row has the words so far, U * (r s) + W * p + B.
Departures from the papers: no cutoff of gates, noise, relaxed sharing or curriculum.
"""

import itertools
import random

import flax.linen as nn
import jax
import jax.numpy as jnp

from t2t_jax.attention.visibility import length_mask
from t2t_jax.models.interface import Model
from t2t_jax.models.layers import Embedding, add_bias, lengths_of, parameter
from t2t_jax.study import Row, architecture, corpus, study

WIDTH = 2  # w
SPLITS = "train dev test test2x test4x"
METRICS = "accuracy,accuracy@test2x,accuracy@test4x"


@corpus("addition", SPLITS, options=dict(length=8), metrics="accuracy", words="0 1 2 3 +")
def addition(split, length):
    draw, most = random.Random(split), length // 2 * int(split[4:-1] or 1)
    for _ in range(20_000 if split == "train" else 500):
        n = draw.randint(1 if split == "train" else most // 2 + 1, most)
        pairs = ((draw.randrange(4**n), draw.randrange(4**n)) for _ in itertools.count())
        a, b = next((a, b) for a, b in pairs if ((7 * a + b) % 5 == 0) != (split == "train"))
        x, y, z = ([str(k // 4**i % 4) for i in range(n + 1)] for k in (a, b, a + b))
        yield " ".join([*x[:n], "+", *y[:n]]), " ".join(z)


def products(c, S, T):  # with a tape, units have twice the inputs
    return c.N * WIDTH * (S * S + 2 * T * max(S, T)) * 27 * c.d_model**2


def transform(units, inside, s, *tape):
    """The state and perhaps a tape, [B, w, L, m], -> the state after units, zero outside."""
    for W, b, U, b_new in units:
        gates = add_bias(patches(s, *tape) @ W.astype(s.dtype), b)
        u, r = jnp.split(jax.nn.sigmoid(gates), 2, -1)
        new = jnp.tanh(add_bias(patches(r * s, *tape) @ U.astype(s.dtype), b_new))
        s = (u * s + (1 - u) * new) * inside
    return s


def patches(*images):
    """Images [B, w, L, m] -> [B, w, L, 9 m ...], each position with its neighbours."""
    x = jnp.pad(jnp.concatenate(images, -1), ((0, 0), (1, 1), (1, 1), (0, 0)))
    w, L = x.shape[1] - 2, x.shape[2] - 2
    return jnp.concatenate([x[:, i : i + w, j : j + L] for i in range(3) for j in range(3)], -1)


@architecture("neural_gpu", products=products)
class NeuralGPU(Model):
    def setup(self):
        self.embedding = Embedding(self.V, self.c, self.dtype)
        self.encoder = [(*self.weights(f"encoder_{i}", 1),) for i in range(self.c.N)]
        self.decoder = [(*self.weights(f"decoder_{i}", 2),) for i in range(self.c.N)]

    def weights(self, name, images):
        """A CGRU's matrices and biases, float32, as their gradients are summed over its steps."""
        m, axes, init = self.c.d_model, ("d_hidden", "d_model"), nn.initializers
        n, glorot = 9 * images * m, init.glorot_uniform()
        gates = ("W", (n, 2 * m), glorot), ("b", (2 * m,), init.ones)
        for x, sizes, first in (*gates, ("U", (n, m), glorot), ("b_new", (m,), init.zeros)):
            yield parameter(self, f"{name}_{x}", sizes, axes[-len(sizes) :], first, jnp.float32)

    def encode(self, source, P_drop=None):
        """The image after n times, [B, w, S, m], and n int32 [B]."""
        n, S = lengths_of(source), source.shape[1]
        inside = length_mask(n, S)[:, None, :, None]
        words = self.drop(self.embedding(source), P_drop)[:, None] * inside
        first = jnp.pad(words, ((0, 0), (0, WIDTH - 1), (0, 0), (0, 0)))

        def turn(s, t):
            new = transform(self.encoder, inside, s)
            return jnp.where((t < n)[:, None, None, None], new, s), None

        return jax.lax.scan(turn, first, jnp.arange(S))[0], n

    def features(self, encoded, target_in, P_drop=None):
        n, state = self.start(encoded, target_in.shape[1])
        y = self.drop(self.embedding(target_in), P_drop).swapaxes(0, 1)
        words = y, jnp.arange(len(y))
        return jax.lax.scan(lambda s, x: self.turn(n, s, *x), state, words)[1].swapaxes(0, 1)

    def start(self, encoded, capacity):
        s, n = encoded
        s = jnp.pad(s, ((0, 0), (0, 0), (0, max(0, capacity - s.shape[2])), (0, 0)))
        return n, (s, jnp.zeros_like(s))

    def step(self, memory, state, tokens, t):
        state, x = self.turn(memory, state, self.embedding(tokens), t)
        return self.embedding.logits(x[:, None])[:, 0], state

    def turn(self, n, state, y, t):
        """Writes the last word y [B, m] to the tape, and reads what predicts word t."""
        s, tape = state
        tape = tape.at[:, 0, jnp.maximum(t - 1, 0)].set(jnp.where(t > 0, y, 0))
        inside = length_mask(jnp.maximum(n, t + 1), s.shape[2])[:, None, :, None]
        s = transform(self.decoder, inside, s, tape)
        return (s, tape), s[:, 0, t]


# fmt: off
@study("Active memory", columns="architecture positions", split="test",
       base=dict(corpus="reverse", task_options="length=8", vocabulary=9, N=4),
       metrics=dict.fromkeys(("reverse", "copy", "addition"), METRICS))
def neural_gpu():
    return [
        Row("Transformer"),
        Row("Transformer, relative", dict(positions="relative")),
        Row("LSTM",                  dict(architecture="recurrent", attention_feeding="output")),
        Row("Neural GPU",            dict(architecture="neural_gpu", d_model=192, N=2)),
    ]
