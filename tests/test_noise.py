"""The three sources of a seed, and what noise.py says of them."""

import json
from collections import defaultdict
from types import SimpleNamespace

import jax
import numpy as np
import pytest
import toy

from experiments import attention, noise
from t2t_jax import cli, config
from t2t_jax.models import build
from t2t_jax.training import sharding
from t2t_jax.training.step import hyper, initialise

SOURCES = [*noise.SOURCES]
MOVED = "", *SOURCES, "rounding"
ROUNDING = 0.15  # deviation of simulated runs


def configured(**changes):
    c = config.replace(config.Config(), N=1, d_model=8, d_ff=6, h=2, d_k=4, d_v=4)
    return config.replace(c, **changes)


@pytest.mark.parametrize("source", SOURCES)
def test_an_offset_moves_the_seed_of_its_source_alone(source):
    moved, before, after = (
        configured(seed=3, **{f"{source}_offset": 4}),
        configured(seed=3),
        configured(seed=7),
    )
    for name in SOURCES:
        expected = after if name == source else before
        assert moved.training.seed_of(name) == expected.training.seed_of(name)
    assert configured(seed=2**32 - 1, init_offset=2).training.seed_of("init") == 1


def test_parameters_follow_the_seed_of_initialisation_and_dropout_its_own():
    def drawn(**changes):
        c = configured(seed=3, **changes)
        params = initialise(build(c, 20), c, sharding.make_mesh()).params
        return np.concatenate([x.ravel() for x in jax.tree.leaves(params)]), int(hyper(c).seed)

    params, seed = drawn()
    other, same_seed = drawn(init_offset=1)
    assert same_seed == seed == 3
    assert not np.array_equal(params, other)
    same, seed_of_dropout = drawn(dropout_offset=1, order_offset=1)
    np.testing.assert_array_equal(params, same)
    assert seed_of_dropout == 4


@pytest.mark.full
def test_runs_differ_by_each_source_and_all_offsets_together_are_another_seed(tmp_path, capsys):
    corpus, home = tmp_path / "corpus", tmp_path / "runs"
    corpus.mkdir()
    words = toy.train(toy.write(corpus), tmp_path / "cache", steps=6, evaluate_every=6, P_drop=0.2)
    found = {}
    changes = {x: {f"{x}_offset": 1} for x in SOURCES}
    changes |= {"none": {}, "all": {k: v for x in changes.values() for k, v in x.items()}}
    for name, fields in changes.items():
        assert not cli.main([*words, "--run", str(home / name), *toy.options(fields)])
        found[name] = toy.records(home / name)[-1]["dev_perplexity"]
    assert not cli.main([*words, "--run", str(home / "next"), "--seed", "1"])
    capsys.readouterr()
    assert toy.records(home / "next")[-1]["dev_perplexity"] == found["all"]
    assert len({*found.values()}) == 5


def test_noise_and_attention_share_rows():
    """The first rows of each mechanism, whose runs both studies share."""
    rows = {row.name: row.changes for row in attention.attention.rows}
    for row in noise.noise.rows:
        name, _, moved = row.name.partition(", other ")
        change = {"": {}, "rounding": dict(eps_ls=noise.ROUNDED)}.get(moved, {f"{moved}_offset": 1})
        assert dict(row.changes) == dict(rows[name]) | change
    assert len(noise.noise.rows) == 30


def test_other_rounding_differs_by_three_units_in_the_last_place():
    numbers = np.float32([config.Config().training.eps_ls, noise.ROUNDED])
    assert np.diff(numbers.view(np.int32)) == 3


def drawn(effects, interaction, n, random):
    """Values of seeds with the effects of each source, and of each combination of sources."""
    size = n + 1
    alone = {x: random.normal(scale=effects[x], size=size) for x in SOURCES}
    together = defaultdict(lambda: random.normal(scale=interaction))

    def value(seed, moved=""):
        at = [seed + (x == moved) for x in SOURCES]
        return sum(alone[x][i] for x, i in zip(SOURCES, at, strict=True)) + together[tuple(at)]

    values = {moved: [value(seed, moved) for seed in range(n)] for moved in ("", *SOURCES)}
    rounded = [x + random.normal(scale=2**0.5 * ROUNDING) for x in values[""]]
    return values | {"rounding": rounded}


@pytest.mark.parametrize("interaction", [0.0, 0.5])
def test_deviations_by_source_follow_the_model_that_made_the_runs(interaction):
    """Where sources interact, each alone moves a result as much as its interaction does."""
    effects, random = dict(init=0.3, order=0.1, dropout=0.2), np.random.default_rng(0)
    found = noise.sources(drawn(effects, interaction, 3000, random))
    squares = sum(x**2 for x in effects.values())
    expected = {"all sources": squares + interaction**2, "rounding alone": ROUNDING**2}
    for name, title in noise.SOURCES.items():
        expected[f"{title} alone"] = effects[name] ** 2 + interaction**2
        expected[f"all but {title}"] = squares - effects[name] ** 2 + interaction**2
    assert {x: d.size for x, d in found.items()} == pytest.approx(
        {x: v**0.5 for x, v in expected.items()}, rel=0.05
    )


def test_an_interval_holds_the_deviation_in_19_of_20_cases():
    values = np.random.default_rng(0).normal(scale=2.0, size=(2000, 8))
    found = [noise.Deviation.of(x.var(ddof=1), 7) for x in values]
    assert np.mean([x.low < 2.0 < x.high for x in found]) == pytest.approx(0.95, abs=0.015)


def test_intervals_by_source_hold_the_deviation_in_19_of_20_cases():
    """Neighbouring pairs of runs share a seed."""
    effects, random = dict(init=0.3, order=0.1, dropout=0.2), np.random.default_rng(0)
    squares = {name: x**2 for name, x in effects.items()}
    inside = defaultdict(list)
    for _ in range(2000):
        found = noise.sources(drawn(effects, 0.0, 8, random))
        for name, title in noise.SOURCES.items():
            alone, without = found[f"{title} alone"], found[f"all but {title}"]
            inside["alone"].append(alone.low < effects[name] < alone.high)
            rest = (sum(squares.values()) - squares[name]) ** 0.5
            inside["without"].append(without.low < rest < without.high)
        rounded = found["rounding alone"]
        inside["rounding"].append(rounded.low < ROUNDING < rounded.high)
    for of_kind in inside.values():
        assert np.mean(of_kind) == pytest.approx(0.95, abs=0.015)


def line(name, NLL, unusual=""):
    """A row with runs of some seeds, as `measure` reads it."""

    def run(seed, x):
        scores = {"test": {"bleu": {"score": 50 - 10 * x}}}
        result = {"dev_perplexity": np.exp(x), "scores": scores}
        return SimpleNamespace(seed=seed, result=result, unusual=unusual)

    row = SimpleNamespace(name=name)
    return SimpleNamespace(row=row, runs=[run(seed, x) for seed, x in NLL.items()])


def test_runs_are_paired_by_their_seeds_and_tables_show_them(tmp_path):
    """A moved row lacks seed 3, so that seeds 0 to 2 are compared, though others are stored."""
    random, rows = np.random.default_rng(0), []
    values = {}
    for name in noise.MECHANISMS:
        for moved in MOVED:
            seeds = (0, 1, 2, 4, 5) if moved == "order" else range(6)
            values[name, moved] = {seed: random.normal(2, 0.05) for seed in seeds}
            label = f"{name}, other {moved}" if moved else name
            rows.append(line(label, values[name, moved]))
    attention_rows = [line(name, values[name, ""], "jax 0.9" * (name == "local"))
                      for name in noise.MECHANISMS]  # fmt: skip
    attention_rows.append(line("two seeds", {0: 2.0, 1: 2.1}))
    results = noise.measure(rows, attention_rows)
    of_local = results["sources"]["local"]["NLL"]
    firsts = {x: [values["local", x][seed] for seed in range(3)] for x in MOVED}
    assert of_local == noise.sources(firsts)
    assert [*results["rows"]] == [*noise.MECHANISMS]
    assert results["rows"]["local"]["NLL"].size == pytest.approx(
        np.std([*values["local", ""].values()], ddof=1)
    )
    assert results["unusual"] == ["local"]
    text = noise.tables(results)
    assert "other code, libraries or devices than most: local." in text
    assert f"| local | 6 | {noise.shown(results['rows']['local']['NLL'], 'NLL')} |" in text
    noise.draw(results, tmp_path / "deviations")
    assert (tmp_path / "deviations.png").stat().st_size > 1000


@pytest.mark.parametrize("deviations", [(0.02, 0.02), (0.05, 0.01)])
def test_the_seeds_to_detect_a_difference_find_it_in_four_of_five_tables(deviations):
    n = noise.seeds_to_detect(0.03, deviations)
    random = np.random.default_rng(0)
    a, b = (random.normal(scale=x, size=(20_000, n)) for x in deviations)
    p = noise.stats.ttest_ind(a + 0.03, b, axis=1, equal_var=False).pvalue
    assert 0.78 < np.mean(p < 0.05) < 0.9


def test_a_rule_has_the_false_winners_of_normal_runs():
    """Of rows with the same deviation, a test at 5% declares a winner in about 5%."""
    values = np.random.default_rng(0).normal(scale=0.02, size=(40, 8))
    deviations = noise.shrunk([noise.Deviation.of(x.var(ddof=1), 7) for x in values])
    assert deviations == pytest.approx(0.02, rel=0.3)  # as estimates differ by chance alone
    found = noise.false_winners(deviations)
    rules = [*found.values()]
    one, best, means, normal, bars, errors, welch = rules
    assert one == pytest.approx(2 * noise.special.ndtr(-0.01 / (0.02 * 2**0.5)), abs=0.02)
    assert best < one
    assert means == pytest.approx(2 * noise.special.ndtr(-0.01 / (0.02 * (2 / 3) ** 0.5)), abs=0.02)
    assert normal == pytest.approx(0.05, abs=0.015)
    assert bars > welch
    assert errors > welch
    assert 0.02 < welch < 0.055


def test_stored_noise_follows_from_the_stored_runs():
    if not noise.RESULTS.exists():
        pytest.skip("noise.py has no stored results")
    results = noise.stored()
    assert json.loads((noise.RESULTS / "noise.json").read_text()) == json.loads(json.dumps(results))
    assert noise.tables(results) == (noise.RESULTS / "table.md").read_text()
