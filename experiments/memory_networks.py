"""Memory networks: how many hops does a question about a story take?

    launch/local.sh run memory_networks --preset diagnostic --seeds 3

It takes about 3 minutes on 2 CPU cores for each seed. Stories are drawn as in bAbI
(Weston et al. 2015, tasks 1 to 3): persons go to places, take things and carry them. A question
needs one sentence ("where is mary ?"), two (where a thing is: who took it, and where that person
went) or three (where it was before), by which test1, test2 and test3 have the accuracy.

A memory network (Sukhbaatar et al. 2015) reads the story in K hops; N is K. It has equations 1 to
4, the position and temporal encodings of section 4.1, and adjacent weights (section 2.2): A^(k+1) =
C^k, B = A^1 and W = C^K. Departures from the paper: Adam, as in all rows, no linear start, and no
random empty memories. In decoding, the answer so far is added to the question, so that
the model can predict the end mark.
"""

import random
from itertools import pairwise

import flax.linen as nn
import jax
import jax.numpy as jnp

from t2t_jax.models.interface import Model
from t2t_jax.models.layers import Embedding, parameter
from t2t_jax.study import Row, architecture, corpus, study
from t2t_jax.tokens import UNK

PERSONS = "mary", "john", "sandra", "daniel"
PLACES = "kitchen", "garden", "office", "hallway", "bathroom", "bedroom"
THINGS = "milk", "apple", "football"
WORDS = [*". ? where is was before went to took".split(), *PERSONS, *PLACES, *THINGS]
HOPS = {1: "1 hop", 2: "2 hops", 3: "3 hops"}
STOP = UNK + 1  # the first word, which ends a sentence


def story(draw, facts):
    """Returns sentences with a question that needs `facts` of them, and its answer."""
    at: dict[str, str] = {}
    taken: dict[str, tuple[str, list[str]]] = {}  # who has a thing, and the places where it was
    lines: list[str] = []
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
    question, answer = draw.choice(asked or [("", "")])
    return (" ".join([*lines, question]), answer) if asked else story(draw, facts)


@corpus("stories", splits="train dev test1 test2 test3", metrics="accuracy", words=" ".join(WORDS))
def stories(split):
    draw = random.Random(split)
    for _ in range(20_000 if split == "train" else 500):
        yield story(draw, int(split[4:]) if split.startswith("test") else draw.randint(1, 3))


def products(c, S, T):
    return c.N * 2 * T * S * c.d_model


@architecture("memory_network", products=products)
class MemoryNetwork(Model):
    def setup(self):
        K, d, axes = self.c.N, self.c.d_model, ("hops", "positions", "d_model")
        self.embeddings = [Embedding(self.V, self.c, self.dtype) for _ in range(K)]
        self.embedding = Embedding(self.V, self.c, self.dtype)  # C^K
        sizes, normal = (K + 1, self.longest, d), nn.initializers.normal(0.1)
        self.times = parameter(self, "times", sizes, axes, normal, jnp.float32)

    def encode(self, source, P_drop=None):
        """The question [B, d], memories m^1, c^1 = m^2, ..., c^K [B, S, d], and which are used."""
        S, d = source.shape[1], self.c.d_model
        t, stop = jnp.arange(S)[None], source == STOP
        words = (source > STOP).astype(jnp.float32)
        # The question has age 0, the sentence before it age 1.
        age = stop.sum(1, keepdims=True) - stop.cumsum(1) + stop
        by_age = jax.vmap(lambda x, age: jnp.zeros((S + 1, *x.shape[1:])).at[age].add(x))
        J = jnp.take_along_axis(by_age(words, age), age, 1)  # words in the sentence
        j = t + 1 - jax.lax.cummax(jnp.where(stop, t + 1, 0), axis=1)
        j, k = (j / jnp.maximum(J, 1))[..., None], (jnp.arange(1, d + 1) / d)[None, None]
        weight = words[..., None] * (1 - j - k * (1 - 2 * j))  # l_kj
        A = [x.matrix for x in (*self.embeddings, self.embedding)]
        sums = [by_age(weight * jnp.take(matrix, source, 0), age) for matrix in A]
        used = t < stop.sum(1, keepdims=True)
        pairs = zip(sums, self.times[:, t], strict=True)  # later positions have the last time
        memories = [used[..., None] * (x[:, 1:] + T) for x, T in pairs]
        return self.drop(sums[0][:, 0], P_drop), memories, used

    def features(self, encoded, target_in, P_drop=None):
        u, *memory = encoded
        so_far = jnp.take(self.embeddings[0].matrix, target_in, 0).cumsum(1)
        return self.hop(u[:, None] + so_far, *memory)

    def hop(self, u, memories, used):
        """u [B, T, d] -> the same, after K hops: equations 1, 2 and 4."""
        for m, c in pairwise(memories):
            z = jnp.where(used[:, None], jnp.einsum("btd,bsd->bts", u, m), -1e9)
            u = u + jnp.einsum("bts,bsd->btd", jax.nn.softmax(z), c)
        return u.astype(self.dtype)

    def start(self, encoded, capacity):
        return encoded[1:], encoded[0]

    def step(self, memory, state, tokens, t):
        u = state + jnp.take(self.embeddings[0].matrix, tokens, 0)
        return self.embedding.logits(self.hop(u[:, None], *memory))[:, 0], u


METRICS = dict(stories="accuracy,accuracy@test1,accuracy@test2,accuracy@test3")


# fmt: off
@study("Memory networks", columns="architecture N", split="dev", metrics=METRICS,
       base=dict(corpus="stories", vocabulary=26, N=4, steps=200_000))
def memory_networks():
    return [
        Row("Transformer"),
        Row("LSTM", dict(architecture="recurrent", attention_feeding="output")),
        *(Row(x, dict(architecture="memory_network", N=2 * K)) for K, x in HOPS.items()),
    ]
