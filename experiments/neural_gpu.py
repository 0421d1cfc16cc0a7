"""The Extended Neural GPU: does an active memory find algorithms that hold for longer inputs?

    launch/local.sh run neural_gpu --preset diagnostic --seeds 3                       reversal
    launch/local.sh run neural_gpu --preset diagnostic --seeds 3 --corpus copy
    launch/local.sh run neural_gpu --preset diagnostic --seeds 3 --corpus addition

Each takes about MINUTES minutes on 2 CPU cores for each seed.

Models reverse or copy up to 8 symbols of 5, or add two numbers of up to 4 digits to base 4, lowest
digits first. They are tested on the length of training and on 2 and 4 times as much.

The state of a Neural GPU (Kaiser and Sutskever 2016, section 2) is an image of w x n positions with
m = d_model features. Its first row starts as the n embedded words of the source. A convolutional
gated recurrent unit transforms the whole image, n times:

    CGRU(s) = u s + (1 - u) tanh(U * (r s) + B),  u = sigmoid(U' * s + B'),  r likewise

N is the number of CGRUs in turn each time. For each word of the target, the decoder of Kaiser and
Bengio (2016, section 2.3) transforms it once more, with CGRUs that also read a tape p, whose first
row has the words so far, U * (r s) + W * p + B, and then reads the word's place in the first row.
Departures from the papers: no cutoff of gates, noise, relaxed sharing or curriculum. What
lies outside the source and the target so far is zero, whatever the padding.
"""

import random

import flax.linen as nn
import jax
import jax.numpy as jnp

from t2t_jax.attention.visibility import length_mask
from t2t_jax.models.interface import Model
from t2t_jax.models.layers import Embedding, add_bias, lengths_of, parameter
from t2t_jax.study import Row, architecture, corpus, study

LSTM = dict(architecture="recurrent", attention_feeding="output", cross_attention="dot_product")
METRICS = "accuracy,accuracy@test2x,accuracy@test4x"
WIDTH = 2  # w
SPLITS = {"train": 1, "dev": 1, "test": 1, "test2x": 2, "test4x": 4}


@corpus("addition", " ".join(SPLITS), options=dict(length=8), metrics="accuracy", words="0 1 2 3 +")
def addition(split, length):
    draw, most = random.Random(split), length * SPLITS[split] // 2
    for _ in range(20_000 if split == "train" else 500):
        n = draw.randint(1 if split == "train" else most // 2 + 1, most)
        a, b = (draw.randrange(4**n) for _ in range(2))
        x, y, z = ([str(k // 4**i % 4) for i in range(n + 1)] for k in (a, b, a + b))
        yield " ".join([*x[:n], "+", *y[:n]]), " ".join(z)


def products(c, S, T):
    m, turns = c.d_model, S * S + 2 * T * max(S, T)  # with a tape, inputs are twice as many
    return c.N * WIDTH * turns * 9 * m * 3 * m


def cgru(weights, s, *tape):
    """The state and perhaps a tape, [B, w, L, m], -> the next state."""
    W_gates, b_gates, U, b = weights
    u, r = jnp.split(jax.nn.sigmoid(add_bias(patches(s, *tape) @ W_gates, b_gates)), 2, -1)
    return u * s + (1 - u) * jnp.tanh(add_bias(patches(r * s, *tape) @ U, b))


def patches(*images):
    """Images [B, w, L, m] -> [B, w, L, 9 m ...], each position with its neighbours."""
    x = jnp.pad(jnp.concatenate(images, -1), ((0, 0), (1, 1), (1, 1), (0, 0)))
    w, L = x.shape[1] - 2, x.shape[2] - 2
    return jnp.concatenate([x[:, i : i + w, j : j + L] for i in range(3) for j in range(3)], -1)


@architecture("neural_gpu", products=products)
class NeuralGPU(Model):
    def setup(self):
        self.embedding = Embedding(self.V, self.c, self.dtype)
        self.encoder = [self.weights(f"encoder_{i}", 1) for i in range(self.c.N)]
        self.decoder = [self.weights(f"decoder_{i}", 2) for i in range(self.c.N)]

    def weights(self, name, images):
        """The matrices and biases of a CGRU that reads so many images; biases open its gates."""
        m, axes, glorot = self.c.d_model, ("d_hidden", "d_model"), nn.initializers.glorot_uniform()

        def of(part, width, bias):
            sizes = 9 * images * m, width
            W = parameter(self, f"{name}_W_{part}", sizes, axes, glorot, self.dtype)
            return W, parameter(self, f"{name}_b_{part}", sizes[1:], axes[1:], bias, jnp.float32)

        init = nn.initializers
        return *of("gates", 2 * m, init.ones), *of("new", m, init.zeros)

    def encode(self, source, P_drop=None):
        """The image after n times, [B, w, S, m], and n int32 [B]."""
        n, S = lengths_of(source), source.shape[1]
        inside = length_mask(n, S)[:, None, :, None]
        words = self.drop(self.embedding(source), P_drop)[:, None] * inside
        first = jnp.pad(words, ((0, 0), (0, WIDTH - 1), (0, 0), (0, 0)))

        def turn(s, t):
            new = s
            for weights in self.encoder:
                new = cgru(weights, new) * inside
            return jnp.where((t < n)[:, None, None, None], new, s), None

        return jax.lax.scan(turn, first, jnp.arange(S))[0], n

    def features(self, encoded, target_in, P_drop=None):
        n, state = self.start(encoded, target_in.shape[1])
        y = self.drop(self.embedding(target_in), P_drop).swapaxes(0, 1)
        turn, words = lambda s, x: self.turn(n, s, *x), (y, jnp.arange(len(y)))
        return jax.lax.scan(turn, state, words)[1].swapaxes(0, 1)

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
        for weights in self.decoder:
            s = cgru(weights, s, tape) * inside
        return (s, tape), s[:, 0, t]


# fmt: off
@study("Active memory", columns="architecture positions", split="test", V=9,
       base=dict(corpus="reverse", task_options="length=8", vocabulary=9, N=4),
       metrics=dict.fromkeys(("reverse", "copy", "addition"), METRICS))
def neural_gpu():
    return [
        Row("Transformer"),
        Row("Transformer, relative", dict(positions="relative")),
        Row("LSTM, dot",             LSTM),
        Row("Neural GPU",            dict(architecture="neural_gpu", d_model=192, N=2)),
    ]
