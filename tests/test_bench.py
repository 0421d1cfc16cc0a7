"""The benchmark commands measure and print, and exponents are fitted."""

import dataclasses
import json
import types

import jax
import numpy as np
import pytest

from experiments.tools import kernels, reading, start
from t2t_jax import config
from t2t_jax.bench import train, translate, workload
from t2t_jax.bench.attention import crossing, mechanism_at
from t2t_jax.bench.lengths import Compiled, exponent, sweep
from t2t_jax.cli import main
from t2t_jax.errors import RunError
from t2t_jax.recipes import recipe
from t2t_jax.tokens import EOS, PAD
from t2t_jax.training import throughput
from tests import toy


def test_exponents_are_fitted_to_the_upper_half_of_the_lengths():
    curve = [
        {"n": n, "seconds": 5.0 if n < 100 else n**1.5 / 7} for n in (32, 64, 128, 256, 512, 1024)
    ]
    assert exponent(curve, "seconds") == pytest.approx(1.5)
    assert exponent(curve[:2], "seconds") is None
    assert exponent([{"n": n, "seconds": 0.0} for n in (1, 2, 3)], "seconds") is None


@pytest.mark.parametrize(
    ("kind", "teraflops"),
    [
        ("NVIDIA H100 80GB HBM3", 989),
        ("NVIDIA H100 PCIe", 756),
        ("TPU v5 lite", 197),
        ("TPU v5", 459),
        ("NVIDIA A100-SXM4-80GB", 312),
        ("NVIDIA B200", None),
    ],
)
def test_the_peak_of_a_device_is_that_of_its_own_name(kind, teraflops, monkeypatch):
    device = types.SimpleNamespace(platform="gpu", device_kind=kind)
    monkeypatch.setattr(jax, "devices", lambda: [device])
    monkeypatch.setattr(jax, "device_count", lambda: 2)
    peak = throughput.peak_flops.__wrapped__()
    assert peak == (teraflops and 2e12 * teraflops)


def test_a_crossing_is_interpolated_in_logarithms():
    def points(lengths, seconds):
        return [{"n": n, "seconds": seconds(n)} for n in lengths]

    dense = points((16, 64, 256, 1024), lambda n: 1e-6 * n**2)
    linear = points((16, 64, 256, 4096), lambda n: 1e-4 * n)
    assert crossing(linear, dense) == pytest.approx(100)
    assert crossing(points((16, 64), lambda n: 1e-9), dense) == pytest.approx(16)
    assert crossing(linear[:2], dense) is None
    assert crossing(linear[3:], dense) is None
    again = [*linear[:2], {"n": 256, "seconds": 1e-9}, {"n": 1024, "seconds": 10}]
    assert crossing(again, dense) is None


def test_a_kernel_may_be_four_times_as_inexact_as_its_definition():
    def results(of_kernel):
        return {"a": {"plain": {"errors": [0.0, [0.01]]}, "kernel": {"errors": [of_kernel, [0.0]]}}}

    assert kernels.exact(results(0.039))
    assert not kernels.exact(results(0.041))


@pytest.mark.full
def test_bench_attention_measures_prints_and_plots(tmp_path, capsys):
    names = ["scaled_dot_product", "local_p:w=4"]
    words = ["--lengths", "32", "16", "--mechanisms", *names, "--out", str(tmp_path)]
    assert main(["bench", "attention", *words]) == 0
    mechanisms = json.loads((tmp_path / "attention.json").read_text())["mechanisms"]
    assert list(mechanisms) == names
    assert [point["n"] for point in mechanisms["local_p:w=4"]["at"]] == [16, 32]
    assert not mechanisms["local_p:w=4"]["causal"]
    for point in mechanisms["local_p:w=4"]["at"]:
        assert 0 < point["least"] <= point["seconds"] <= point["most"]
    printed = capsys.readouterr().out
    for kind, of_kind in (("forward", names), ("step", names[:1])):
        assert [name for name in names if mechanisms[name][kind]] == of_kind
    (step,) = mechanisms["scaled_dot_product"]["step"]
    assert step["n"] == 32  # the last 16 positions of 16 are all of them
    assert step["bytes"] == 2 * 32 * 8 * 64 * 4  # keys and values of all heads
    assert 0 < step["least"] <= step["seconds"] <= step["most"]
    assert (tmp_path / "attention.txt").read_text() == printed
    assert all(name in printed for name in names)
    assert "1.0x" in printed
    assert (tmp_path / "attention.png").stat().st_size > 10_000
    assert (tmp_path / "attention.svg").exists()


@pytest.mark.full
def test_a_mechanism_that_takes_no_steps_is_measured_alone(tmp_path):
    words = "--lengths", "16", "--mechanisms", "local_p:w=4", "--out", str(tmp_path)
    assert main(["bench", "attention", *words]) == 0
    (measured,) = json.loads((tmp_path / "attention.json").read_text())["mechanisms"].values()
    assert not measured["step"]


def test_short_lengths_are_measured_and_no_length_at_all_is_an_error(monkeypatch):
    for name in ("cosformer", "linformer"):  # with a parameter of this length
        mechanism_at(name, 4)
    with pytest.raises(RunError, match="nothing was measured"):
        sweep(["all"], [16], 1, lambda name, n: Compiled(None, (), 1 << 60))


def test_a_workload_is_deterministic():
    w = workload.workload("tiny", 512)
    batches, again = workload.batches(w), workload.batches(w)
    assert len(batches) == workload.BATCHES
    assert len({b["source"].shape + b["target"].shape for b in batches}) <= workload.SHAPES
    one = dataclasses.replace(w, c=config.replace(w.c, num_buckets=1))
    assert len({b["target"].shape for b in workload.batches(one)}) == 1
    for first, second in zip(batches, again, strict=True):
        for side, x in first.items():
            np.testing.assert_array_equal(x, second[side])
            assert 256 < x.size <= 512
            assert x.max() < w.V
            assert ((x == EOS).sum(1) == (x != PAD).any(1)).all()
    tokens = sum(np.count_nonzero(x) for b in batches for x in b.values())
    assert workload.count_tokens(batches) == tokens
    assert workload.hyperparameters(w) == dict(
        N=4, d_model=128, d_ff=256, h=4, V=8000, P_drop=0.1, eps_ls=0.1
    )


@pytest.fixture
def one_short_round(corpus, monkeypatch):
    """Every benchmark runs one round, with few sentences, batches of one shape and one layer."""
    small = toy.of_a_grid(corpus)
    monkeypatch.setattr(reading, "recipe", lambda name: config.replace(recipe(name), **small))
    monkeypatch.setattr(start, "WORDS", ["grammar", *toy.options(small)])
    monkeypatch.setattr(workload, "recipe", lambda name: config.replace(recipe(name), N=1))
    for module in (reading, start, train, translate):
        monkeypatch.setattr(module, "ROUNDS", 1)
    monkeypatch.setattr(workload, "SENTENCES", 128)
    monkeypatch.setattr(workload, "SHAPES", 1)


@pytest.mark.full
def test_a_population_of_two_takes_the_same_steps_as_one_run(one_short_round, monkeypatch):
    monkeypatch.setattr(workload, "BATCHES", 1)
    w = workload.workload("tiny", 256)
    single, double = train.Steps(w), train.Steps(w, 2)
    for steps in (single, double):
        steps()
    assert workload.count_tokens(double.batches) == 2 * workload.count_tokens(single.batches)
    leaves = jax.tree.leaves(single.state.optimizer)
    for pair, leaf in zip(jax.tree.leaves(double.state.optimizer), leaves, strict=True):
        assert pair.shape == (2, *leaf.shape)
        np.testing.assert_allclose(pair[0], pair[1], rtol=0, atol=1e-7)
        np.testing.assert_allclose(pair[0], leaf, rtol=1e-3, atol=1e-6)


@pytest.mark.full
def test_every_other_benchmark_measures_and_prints(one_short_round, tmp_path, capsys):
    out = ["--out", str(tmp_path)]
    benches = {
        "train": lambda: main(["bench", "train", "--sizes", "tiny", "--batch_tokens", "256", *out]),
        "translate": lambda: main(["bench", "translate", *out]),
        "input": lambda: reading.main(tmp_path),
        "start": lambda: start.main(tmp_path),
    }
    for name, bench in benches.items():
        assert not bench()
        assert (tmp_path / f"{name}.txt").read_text() == capsys.readouterr().out
    results = {p.stem: json.loads(p.read_text()) for p in tmp_path.glob("*.json")}
    x = results["train"]["sizes"]["tiny"]
    assert 0 < x["least"] <= x["seconds"] <= x["most"]
    assert x["first_round"] > 0
    batches = workload.batches(workload.workload("tiny", 256))
    tokens = workload.count_tokens(batches) / workload.BATCHES
    assert x["tokens_per_second"] == pytest.approx(tokens / x["seconds"])
    assert x["share_of_peak"] > 0
    assert min(beam["least"] for beam in results["translate"]["sizes"]["tiny"].values()) > 0
    assert results["input"]["tokens_per_second"] > 0
    assert {*results["start"]["seconds"]} == {"warm", "cold"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["attention", "--mechanisms", "locl"], "local"),
        (["attention", "--lengths", "0"], "--lengths"),
        (["atention"], "attention"),
        (["train", "--sizes", "huge"], "huge"),
        (["train", "--lengths", "3"], "--lengths"),
        (["train", "--batch_tokens", "0"], "batch_tokens"),
        (["train", "--population", "0"], "--population"),
    ],
)
def test_bad_arguments_are_refused(words, message, capsys):
    assert main(["bench", *words]) == 2
    assert message in capsys.readouterr().err
