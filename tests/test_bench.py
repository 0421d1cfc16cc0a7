"""The benchmarks through their commands, and the fit of exponents."""

import json
import sys

import jax
import numpy as np
import pytest

from t2t_jax.bench import CONTENDER, peers, pipeline, start, train, translate, work
from t2t_jax.bench.race import exponent
from t2t_jax.cli import main
from t2t_jax.tokens import EOS, PAD


def test_exponents_are_those_of_the_upper_half():
    at = [
        {"n": n, "seconds": 5.0 if n < 100 else n**1.5 / 7} for n in (32, 64, 128, 256, 512, 1024)
    ]
    assert exponent(at, "seconds") == pytest.approx(1.5)
    assert exponent(at[:2], "seconds") is None
    assert exponent([{"n": n, "seconds": 0.0} for n in (1, 2, 3)], "seconds") is None


def test_attention_is_measured_printed_and_drawn(tmp_path, capsys):
    names = ["scaled_dot_product", "local:w=4", "additive_naive", "local_p"]
    words = ["--lengths", "32", "16", "--mechanisms", *names, "--out", str(tmp_path)]
    assert main(["bench", "attention", *words]) == 0
    found = json.loads((tmp_path / "attention.json").read_text())
    assert list(found["mechanisms"]) == names
    assert [x["n"] for x in found["mechanisms"]["local:w=4"]["at"]] == [16, 32]
    assert not found["mechanisms"]["local_p"]["causal"]
    assert all(
        0 < x["least"] <= x["seconds"] <= x["most"] for x in found["mechanisms"]["local_p"]["at"]
    )
    printed = capsys.readouterr().out
    assert (tmp_path / "attention.txt").read_text() == printed
    assert all(name in printed for name in names)
    assert "1.0x" in printed
    assert (tmp_path / "attention.png").stat().st_size > 10_000
    assert (tmp_path / "attention.svg").exists()


def test_every_contender_is_given_the_same_work():
    s = work.size("tiny", 512)
    batches, again = work.batches(s), work.batches(s)
    assert len(batches) == work.BATCHES
    assert len({b["source"].shape + b["target"].shape for b in batches}) <= work.SHAPES
    for one, other in zip(batches, again, strict=True):
        for side, x in one.items():
            np.testing.assert_array_equal(x, other[side])
            assert 256 < x.size <= 512
            assert x.max() < s.V
            assert ((x == EOS).sum(1) == (x != PAD).any(1)).all()
    assert work.tokens(batches) == sum(np.count_nonzero(x) for b in batches for x in b.values())
    assert work.facts(s) == dict(N=4, d_model=128, d_ff=256, h=4, V=8000, P_drop=0.1, eps_ls=0.1)


@pytest.fixture
def briefly(monkeypatch):
    """One round of everything, of few sentences and batches of one shape."""
    for module in (peers, pipeline, start, train, translate):
        monkeypatch.setattr(module, "ROUNDS", 1)
    monkeypatch.setattr(work, "SENTENCES", 128)
    monkeypatch.setattr(work, "SHAPES", 1)


@pytest.mark.full
def test_several_models_at_once_are_counted_as_several(briefly, monkeypatch):
    monkeypatch.setattr(work, "BATCHES", 1)
    s = work.size("tiny", 256)
    one, two = train.Steps(s), train.Steps(s, 2)
    for steps in (one, two):
        steps()
    assert work.tokens(two.batches) == 2 * work.tokens(one.batches)
    alone = jax.tree.leaves(one.state.optimizer)
    for both, single in zip(jax.tree.leaves(two.state.optimizer), alone, strict=True):
        assert both.shape == (2, *single.shape)
        np.testing.assert_allclose(both[0], both[1], rtol=0, atol=1e-7)
        np.testing.assert_allclose(both[0], single, rtol=1e-3, atol=1e-6)


@pytest.mark.full
@pytest.mark.timeout(600)
def test_what_people_wait_for_is_measured(briefly, tmp_path, capsys):
    out, cache = ["--out", str(tmp_path)], ["--cache", str(tmp_path / "cache")]
    for words in (
        ["train", "--sizes", "tiny", "--batch_tokens", "256"],
        ["translate"],
        ["input", *cache],
        ["start", *cache],
    ):
        assert main(["bench", *words, *out]) == 0
        printed = capsys.readouterr().out
        assert (tmp_path / f"{words[0]}.txt").read_text() == printed
    read = {p.stem: json.loads(p.read_text()) for p in tmp_path.glob("*.json")}
    x = read["train"]["sizes"]["tiny"]
    assert x["least"] <= x["seconds"] <= x["most"] < x["first_round"]
    tokens = work.tokens(work.batches(work.size("tiny", 256))) / work.BATCHES
    assert x["tokens_per_second"] == pytest.approx(tokens / x["seconds"])
    assert 0 < x["share_of_peak"] < 1
    assert min(at["least"] for at in read["translate"]["sizes"]["tiny"].values()) > 1
    assert read["input"]["tokens_per_second"] > 1e5
    assert 1 < read["start"]["seconds"]["warm"] < read["start"]["seconds"]["cold"]


@pytest.mark.full
def test_peers_are_raced_where_they_are_installed(briefly, tmp_path, capsys):
    ctranslate2 = pytest.importorskip("ctranslate2")
    before = tmp_path / "before"
    contender = before / CONTENDER
    contender.parent.mkdir(parents=True)
    for package in [*contender.parents][:3]:
        (package / "__init__.py").touch()
    contender.write_text("while True: print(8.0, flush=True); input()")
    words = ["--python", sys.executable, "--against", str(before), "--out", str(tmp_path)]
    assert main(["bench", "peers", "--tasks", "greedy-tiny", *words]) == 0
    assert "JoeyNMT is left out: ModuleNotFoundError" in capsys.readouterr().err
    found = json.loads((tmp_path / "peers.json").read_text())
    assert found["versions"] == {"CTranslate2": ctranslate2.__version__}
    at = found["tasks"]["greedy-tiny"]
    assert list(at) == ["t2t_jax, before", "CTranslate2", "CTranslate2, a batch a core"]
    earlier = at["t2t_jax, before"]
    assert earlier["per_second"] == [work.SENTENCES / 8] * 3
    _, least, most = earlier["ours_per_second"]
    assert earlier["ours_to_it"][1:] == pytest.approx(
        [8 * x / work.SENTENCES for x in (least, most)]
    )


def test_a_contender_that_ends_in_its_turns_is_named(briefly, tmp_path, capsys):
    contender = tmp_path / "other" / CONTENDER
    contender.parent.mkdir(parents=True)
    for package in [*contender.parents][:3]:
        (package / "__init__.py").touch()
    contender.write_text("print(1.0, flush=True); input()")
    words = ["--python", sys.executable, "--against", str(tmp_path / "other")]
    words += ["--tasks", "greedy-tiny", "--out", str(tmp_path)]
    assert main(["bench", "peers", *words]) == 1
    assert "t2t_jax, other ended in round 1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["attention", "--mechanisms", "locl"], "local"),
        (["attention", "--lengths", "0"], "--lengths"),
        (["atention"], "attention"),
        (["train", "--sizes", "huge"], "huge"),
        (["train", "--lengths", "3"], "--lengths"),
        (["train", "--batch_tokens", "0"], "batch_tokens"),
        (["train", "--population", "0"], "--population"),
        (["peers", "--python", "/no/python"], "/no/python"),
        (["peers", "--python", sys.executable, "--against", "/no/tree"], "/no/tree"),
    ],
)
def test_bad_words_are_refused(words, said, capsys):
    assert main(["bench", *words]) == 2
    assert said in capsys.readouterr().err
