"""Memory networks: how many hops does a question about a story take?

    launch/local.sh run memory_networks --preset diagnostic --seeds 3

About MINUTES minutes on 2 CPU cores for each seed.

Stories are drawn as those of bAbI (Weston et al. 2015, tasks 1 to 3): persons go to places, take
things, and carry them. A question needs one sentence of the story ("where is mary ?"), two (where a
thing is: who took it, and where that person went) or three (where it was before). One model
learns all; the columns test1, test2 and test3 have the accuracy by the number of sentences.

A memory network (Sukhbaatar et al. 2015) reads the story K times, in K hops; N is K. It has
equations 1 to 4, the position and temporal encodings of section 4.1, and adjacent weights (section
2.2): A^(k+1) = C^k, B = A^1 and W = C^K. Departures from the paper: Adam, as in all rows, no linear
start, and no random empty memories. As it answers by a sequence, the answer's words so far are
added to the question, after which the end mark follows.
"""

import random
from itertools import pairwise

import flax.linen as nn
import jax
import jax.numpy as jnp

from t2t_jax.models.interface import Model
from t2t_jax.models.layers import Embedding, parameter
from t2t_jax.study import Row, architecture, corpus, study
from t2t_jax.tokens import EOS, UNK

PERSONS = "mary", "john", "sandra", "daniel"
PLACES = "kitchen", "garden", "office", "hallway", "bathroom", "bedroom"
THINGS = "milk", "apple", "football"
WORDS = [*". ? where is was before went to took".split(), *PERSONS, *PLACES, *THINGS]
STOP = UNK + 1  # the first word, which ends a sentence


def story(draw, facts):
    """Returns sentences, a question that needs `facts` of them, and its answer or None."""
    at, taken, lines = {}, {}, []  # taken: who has a thing, and the places where it was
    for _ in range(draw.randint(2 * facts, 10)):
        person = draw.choice(PERSONS)
        free = [x for x in THINGS if x not in taken and person in at]
        if facts > 1 and free and draw.random() < 0.4:
            taken[thing := draw.choice(free)] = person, [at[person]]
            lines.append(f"{person} took {thing} .")
            continue
        at[person] = draw.choice([x for x in PLACES if x != at.get(person)])
        lines.append(f"{person} went to {at[person]} .")
        for places in [places for holder, places in taken.values() if holder == person]:
            places.append(at[person])
    asked = [(f"where is {x} ?", place) for x, place in at.items()]
    if facts == 2:
        asked = [(f"where is {x} ?", places[-1]) for x, (_, places) in taken.items()]
    if facts == 3:
        steps = [(x, p, *step) for x, (_, p) in taken.items() for step in pairwise(p)]
        asked = [(f"where was {x} before {b} ?", a) for x, p, a, b in steps if p.count(b) == 1]
    question, answer = draw.choice(asked or [("", None)])
    return " ".join([*lines, question]), answer


@corpus("stories", splits="train dev test1 test2 test3", metrics="accuracy", words=" ".join(WORDS))
def stories(split):
    draw = random.Random(split)
    count = 20_000 if split == "train" else 500
    while count:
        facts = int(split[4:]) if split.startswith("test") else draw.randint(1, 3)
        text, answer = story(draw, facts)
        if answer:
            count -= 1
            yield text, answer


def products(c, S, T):
    return c.N * 2 * T * S * c.d_model


@architecture("memory_network", products=products)
class MemoryNetwork(Model):
    def setup(self):
        K, d, axes = self.c.N, self.c.d_model, ("hops", "positions", "d_model")
        self.embeddings = [Embedding(self.V, self.c, self.dtype) for _ in range(K + 1)]
        sizes, normal = (K + 1, self.longest, d), nn.initializers.normal(0.1)
        self.times = parameter(self, "times", sizes, axes, normal, jnp.float32)

    @property
    def embedding(self):
        return self.embeddings[-1]

    def encode(self, source, P_drop=None):
        """The question [B, d], memories m^1, c^1 = m^2, ..., c^K [B, S, d], and which are used."""
        S, d = source.shape[1], self.c.d_model
        t, stop = jnp.arange(S)[None], source == STOP
        words = ((source > STOP) & (source != EOS)).astype(jnp.float32)
        # The question has age 0, the sentence before it age 1.
        age = stop.sum(1, keepdims=True) - stop.cumsum(1) + stop
        by_age = jax.vmap(lambda x, age: jnp.zeros((S + 1, *x.shape[1:])).at[age].add(x))
        J = jnp.take_along_axis(by_age(words, age), age, 1)  # words in the sentence
        j = t + 1 - jax.lax.cummax(jnp.where(stop, t + 1, 0), axis=1)
        j_J = (j / jnp.maximum(J, 1))[..., None]
        k_d = (jnp.arange(1, d + 1) / d)[None, None]
        weight = words[..., None] * (1 - j_J - k_d * (1 - 2 * j_J))  # l_kj
        sums = [by_age(weight * jnp.take(x.matrix, source, 0), age) for x in self.embeddings]
        used = t < stop.sum(1, keepdims=True)
        times = self.times[:, jnp.minimum(t, self.longest - 1)]
        memories = [used[..., None] * (x[:, 1:] + T) for x, T in zip(sums, times, strict=True)]
        return self.drop(sums[0][:, 0], P_drop), memories, used

    def features(self, encoded, target_in, P_drop=None):
        u, memories, used = encoded
        so_far = jnp.take(self.embeddings[0].matrix, target_in, 0).cumsum(1)
        return self.hop(u[:, None] + so_far, memories, used)

    def hop(self, u, memories, used):
        """u [B, T, d] -> the same, after K hops: equations 1, 2 and 4."""
        for m, c in pairwise(memories):
            z = jnp.where(used[:, None], jnp.einsum("btd,bsd->bts", u, m), -1e9)
            u = u + jnp.einsum("bts,bsd->btd", jax.nn.softmax(z), c)
        return u.astype(self.dtype)

    def start(self, encoded, capacity):
        u, *memory = encoded
        return memory, u

    def step(self, memory, state, tokens, t):
        u = state + jnp.take(self.embeddings[0].matrix, tokens, 0)
        return self.embedding.logits(self.hop(u[:, None], *memory))[:, 0], u


LSTM = dict(architecture="recurrent", attention_feeding="output", cross_attention="dot_product")
COLUMNS = "accuracy,accuracy@test1,accuracy@test2,accuracy@test3"


# fmt: off
@study("Memory networks", columns="architecture N", split="dev", V=26,
       base=dict(corpus="stories", vocabulary=26, N=4), metrics=dict(stories=COLUMNS))
def memory_networks():
    return [
        Row("Transformer"),
        Row("LSTM, dot", LSTM),
        Row("1 hop",     dict(architecture="memory_network", N=2)),
        Row("2 hops",    dict(architecture="memory_network", N=4)),
        Row("3 hops",    dict(architecture="memory_network", N=6)),
    ]
