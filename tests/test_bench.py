"""The benchmark of attention through its command, and the fit of exponents."""

import json

import pytest

from t2t_jax.bench.race import exponent
from t2t_jax.cli import main


def test_exponents_are_those_of_the_upper_half():
    at = [
        {"n": n, "seconds": 5.0 if n < 100 else n**1.5 / 7} for n in (32, 64, 128, 256, 512, 1024)
    ]
    assert exponent(at, "seconds") == pytest.approx(1.5)
    assert exponent(at[:2], "seconds") is None
    assert exponent([{"n": n, "seconds": 0.0} for n in (1, 2, 3)], "seconds") is None


def test_attention_is_measured_printed_and_drawn(tmp_path, capsys):
    names = ["scaled_dot_product", "local:w=4", "additive_naive", "local_p"]
    words = ["--lengths", "48", "16", "32", "--mechanisms", *names, "--out", str(tmp_path)]
    assert main(["bench", "attention", *words]) == 0
    found = json.loads((tmp_path / "attention.json").read_text())
    assert list(found["mechanisms"]) == names
    assert [x["n"] for x in found["mechanisms"]["local:w=4"]["at"]] == [16, 32, 48]
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


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["attention", "--mechanisms", "locl"], "local"),
        (["attention", "--lengths", "0"], "--lengths"),
        (["atention"], "attention"),
    ],
)
def test_bad_words_are_refused(words, said, capsys):
    assert main(["bench", *words]) == 2
    assert said in capsys.readouterr().err
