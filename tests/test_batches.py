"""Batches hold every pair once, have few fixed shapes and depend on (seed, epoch, index) alone."""

import hashlib
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from t2t_jax.config import Data
from t2t_jax.data.batches import Batches, bounds, in_order
from t2t_jax.data.cache import open_dataset, ragged
from t2t_jax.data.prepare import prepare
from t2t_jax.errors import UsageError
from tests.process import python

EOS = 2


def sentences(lengths, salt):
    """Returns sentences that all differ: the first two tokens encode a sentence's index."""
    rows = []
    for i, n in enumerate(lengths):
        body = [4 + salt + i % 97, 200 + i // 97, *range(5, 5 + n)]
        rows.append([*body[: n - 1], EOS])
    return rows


def pairs_of(batch):
    """Returns the pairs in a batch as tuples without PAD, independently of the code under test."""
    rows = zip(batch["source"].tolist(), batch["target"].tolist(), strict=True)
    return [tuple(tuple(x for x in side if x) for side in row) for row in rows if any(row[0])]


def synthetic(n=3000, seed=5):
    """Returns lengths like those of image captions: the two sides are correlated."""
    random = np.random.default_rng(seed)
    base = random.lognormal(2.6, 0.35, n)
    s, t = (np.clip(base * random.lognormal(0, 0.15, n), 2, 60).astype(int) for _ in "st")
    return s + 1, t + 1


lengths = st.lists(st.tuples(st.integers(3, 23), st.integers(3, 31)), min_size=1, max_size=60)


@settings(max_examples=60, deadline=None)
@given(lengths, st.integers(1, 5), st.integers(1, 3), st.integers(0, 2))
def test_an_epoch_has_every_pair_exactly_once(pairs, shapes, multiple, epoch):
    source, target = (sentences(side, salt) for side, salt in zip(zip(*pairs), (0, 1)))  # noqa: B905
    batches = Batches(ragged(source), ragged(target), 101, shapes, multiple).with_seed(3)
    seen = []
    sizes = set()
    for i in range(batches.batches_per_epoch(epoch)):
        batch = batches.read(epoch, i)
        B, S = batch["source"].shape
        T = batch["target"].shape[1]
        assert batch["source"].dtype == batch["target"].dtype == np.int32
        assert batch["target"].shape[0] == B
        assert B % multiple == 0
        assert B * max(S, T) <= 101
        sizes.add((B, S, T))
        seen += pairs_of(batch)
    assert sizes <= {tuple(shape) for shape in batches.shapes}
    assert len(batches.shapes) <= shapes
    expected = zip(map(tuple, source), map(tuple, target), strict=True)
    assert sorted(seen) == sorted(expected)


def cost(pairs, rectangles):
    """Returns the positions of all pairs, each in the smallest rectangle that holds it."""
    fits = [[S + T for S, T in rectangles if a <= S and b <= T] for a, b in pairs]
    return sum(map(min, fits)) if all(fits) else np.inf


@settings(max_examples=30, deadline=None)
@given(lengths, st.integers(1, 4))
def test_bounds_cover_all_pairs_and_are_a_local_optimum(pairs, count):
    """Moving any bound by one never lowers the cost."""
    chosen = bounds(*np.array(pairs).T, count)
    assert len(chosen) <= count
    least = cost(pairs, chosen)
    assert np.isfinite(least)
    for i, d in itertools.product(range(len(chosen)), ((1, 0), (-1, 0), (0, 1), (0, -1))):
        S, T = chosen[i]
        moved = [*chosen[:i], (S + d[0], T + d[1]), *chosen[i + 1 :]]
        assert cost(pairs, moved) >= least


def test_bounds_are_optimal_on_a_small_grid():
    random = np.random.default_rng(0)
    s, t = random.integers(1, 7, 40), random.integers(1, 6, 40)
    grid, pairs = itertools.product(range(1, 7), range(1, 6)), [*zip(s, t, strict=True)]
    best = min(cost(pairs, x) for x in itertools.combinations(grid, 3))
    assert cost(pairs, bounds(s, t, 3)) == best


def test_bounds_of_many_lengths_cover_them_with_little_padding():
    random = np.random.default_rng(1)
    s, t = random.integers(2, 700, 5000), random.integers(2, 500, 5000)
    chosen = bounds(s, t, 6)
    assert cost(zip(s, t, strict=True), chosen) < 0.8 * len(s) * (s.max() + t.max())


def padding_of(batches, epoch):
    """Returns the share of PAD among all positions, counted in the arrays themselves."""
    filled = positions = 0
    for i in range(batches.batches_per_epoch(epoch)):
        for side in batches.read(epoch, i).values():
            filled += np.count_nonzero(side)
            positions += side.size
    return 1 - filled / positions


@pytest.mark.parametrize("multiple", [1, 6])
def test_buckets_reduce_the_padding_of_synthetic_lengths(multiple):
    s, t = synthetic()
    batches = Batches(ragged(sentences(s, 0)), ragged(sentences(t, 1)), 1024, 8, multiple)
    single = Batches(ragged(sentences(s, 0)), ragged(sentences(t, 1)), 1024, 1, multiple)
    assert padding_of(batches, 4) < 0.2 < 0.6 < padding_of(single, 4)


@pytest.fixture(scope="module")
def captions(multi30k, tmp_path_factory):
    data = Data(corpus="multi30k", directory=str(multi30k), vocabulary=8000, max_length=64)
    root = tmp_path_factory.mktemp("captions")
    return open_dataset(prepare(data, root, report=lambda line: None)).splits["train"]


@pytest.mark.parametrize("batch_tokens", [1024, pytest.param(4096, marks=pytest.mark.full)])
@pytest.mark.parametrize(("shapes", "bound"), [(8, 0.125), (9, 0.12)])
def test_padding_of_multi30k_is_at_most_its_bound(captions, batch_tokens, shapes, bound):
    batches = Batches(captions.source, captions.target, batch_tokens, shapes)
    assert len(batches.shapes) <= shapes
    assert padding_of(batches, 0) <= bound


def small(seed=0, n=500):
    s, t = synthetic(n)
    sides = ragged(sentences(s, 0)), ragged(sentences(t, 1))
    return Batches(*sides, 300, 5, 2).with_seed(seed)


def digest(batches, epoch):
    whole = hashlib.sha256()
    for i in range(batches.batches_per_epoch(epoch)):
        for side in batches.read(epoch, i).values():
            whole.update(repr(side.shape).encode() + side.tobytes())
    return whole.hexdigest()


def test_another_process_makes_the_same_batches():
    code = "from tests.test_batches import *; print(digest(small(seed=7), 3))"
    assert python(code).strip() == digest(small(seed=7), 3)


def test_epochs_and_seeds_differ_in_batches_but_not_in_their_number():
    batches = small(seed=0)
    digests = [digest(batches, 0), digest(batches, 1), digest(small(seed=1), 0)]
    assert len(set(digests)) == 3
    assert batches.batches_per_epoch(0) == batches.batches_per_epoch(1)
    membership = [{frozenset(pairs_of(batches.read(e, i))) for i in range(9)} for e in (0, 1)]
    assert not membership[0] & membership[1]


def test_the_order_of_shapes_is_the_same_for_every_seed():
    def shape_order(batches, epoch):
        return [batches.read(epoch, i)["source"].shape for i in range(batches.batches_per_epoch())]

    assert shape_order(small(seed=0), 1) == shape_order(small(seed=1), 1)
    assert shape_order(small(seed=0), 1) != shape_order(small(seed=0), 2)


def test_shapes_are_mixed_within_an_epoch():
    batches = small()
    seen = [batches.read(0, i)["source"].shape for i in range(batches.batches_per_epoch(0))]
    changes = sum(a != b for a, b in itertools.pairwise(seen))
    assert changes > 2 * len(batches.shapes)


@pytest.mark.parametrize("place", [(0, 0), (0, 17), (1, 5)])
def test_a_stream_resumed_anywhere_is_the_same(place):
    batches = small()
    per_epoch = batches.batches_per_epoch(0)
    whole = list(itertools.islice(small().stream(), 2 * per_epoch + 3))
    skip = place[0] * per_epoch + place[1]
    resumed = itertools.islice(batches.stream(*place), len(whole) - skip)
    for (place_a, a), (place_b, b) in zip(whole[skip:], resumed, strict=True):
        assert place_a == place_b
        assert all(np.array_equal(a[side], b[side]) for side in ("source", "target"))
    again = next(batches.stream(*whole[per_epoch - 1][0]))[1]
    assert np.array_equal(again["source"], whole[per_epoch][1]["source"])


def test_a_token_budget_below_one_row_is_refused():
    source, target = ragged(sentences([9, 4], 0)), ragged(sentences([5, 14], 1))
    with pytest.raises(UsageError, match="raise batch_tokens to 42"):
        Batches(source, target, 41, shapes=2, multiple=3)


@settings(max_examples=40, deadline=None)
@given(lengths, st.integers(1, 4))
def test_evaluation_reads_every_pair_once(pairs, shapes):
    source, target = (sentences(side, salt) for side, salt in zip(zip(*pairs), (0, 1)))  # noqa: B905
    sizes, seen = set(), []
    for rows, batch in in_order(ragged(source), ragged(target), 50, shapes):
        in_rows = [[x for x in row if x] for row in batch["source"].tolist()]
        assert in_rows[: len(rows)] == [source[i] for i in rows]
        sizes.add((batch["source"].shape, batch["target"].shape))
        sides = ([[x for x in row if x] for row in batch[s].tolist()] for s in batch)
        seen += [pair for pair in zip(*sides, strict=True) if pair != ([], [])]
    assert len(sizes) <= shapes
    assert sorted(seen) == sorted(zip(source, target, strict=True))


def test_evaluation_of_no_pairs_has_no_batches():
    assert list(in_order(ragged([]), ragged([]), 9)) == []
