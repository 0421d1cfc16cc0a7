"""The network of experiments/memory_networks.py equals its definition; its stories are sound."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t2t_jax.config import Config, replace
from t2t_jax.runs import study_file
from t2t_jax.study.declaration import EXPERIMENTS
from tests.reference import memory_networks
from tests.small import TARGET, check_decoding, full_logits, make, padded
from tests.test_flops import check_products
from tests.test_own_parts import stepped

FILE = EXPERIMENTS / "memory_networks.py"
STOP = 4
STORIES = [[7, 9, 4, 12, 8, 10, 4, 6, 5, 11, 2], [6, 8, 2], [17, 4, 21, 9, 5, 4, 13, 4, 2]]


@pytest.fixture(scope="module", autouse=True)
def file():
    return study_file.load(FILE)


def test_the_network_equals_its_definition():
    """Of stories with two sentences, with none, and with three and an empty question."""
    model, params = make(architecture="memory_network", N=3)
    p = jax.tree.map(lambda x: np.asarray(x, np.float64), params)
    targets = [row[row != 0].tolist() for row in np.asarray(TARGET)]
    actual = full_logits(model, params, padded(STORIES, 12))
    for row, source, target in zip(actual, STORIES, targets, strict=True):
        expected = memory_networks.logits(p, source, [1, *target[:-1]], 3, STOP)
        np.testing.assert_allclose(row[: len(target)], expected, rtol=1e-4, atol=1e-4)


def test_decoding_equals_teacher_forcing():
    check_decoding(*make(architecture="memory_network"), source=padded(STORIES, 12))


def test_a_step_trains_every_parameter():
    c = replace(
        Config(), architecture="memory_network", N=2, d_model=12, max_length=13, batch_tokens=99
    )
    state, _ = stepped(c, {"source": padded(STORIES, 12), "target": TARGET})
    for path, moment in jax.tree_util.tree_leaves_with_path(state.optimizer.mu):
        assert jnp.any(moment != 0), path


def test_the_network_costs_what_it_declares():
    check_products(architecture="memory_network", N=3)


def answer(text):
    """Returns the answer to the question of a story, of any kind, by following its sentences."""
    *sentences, question = text.split(" . ")
    at, holder, places = {}, {}, {}
    for sentence in sentences:
        person, verb, *_, last = sentence.split()
        if verb == "went":
            at[person] = last
        else:
            holder[last] = person
        for thing, carrier in holder.items():
            if [at[carrier]] != places.get(thing, [])[-1:]:
                places.setdefault(thing, []).append(at[carrier])
    if match := re.fullmatch(r"where was (\w+) before (\w+) \?", question):
        visited = places[match[1]]
        return visited[visited.index(match[2]) - 1]
    (asked,) = re.fullmatch(r"where is (\w+) \?", question).groups()
    return at[asked] if asked in at else places[asked][-1]


@pytest.mark.parametrize("split", ["dev", "test1", "test2", "test3"])
def test_answers_follow_from_stories(split, file):
    pairs = [*file.stories(split)]
    assert len(pairs) == 500
    assert pairs == [*file.stories(split)]
    assert [answer(text) for text, _ in pairs] == [right for _, right in pairs]
    words = {word for pair in pairs for text in pair for word in text.split()}
    assert words <= {*file.WORDS}
    assert max(len(text.split()) for text, _ in pairs) < 64
