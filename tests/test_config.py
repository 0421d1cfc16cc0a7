"""Configs: the paper's base by default, differences by name, bad values refused in a sentence."""

import json
import math

import numpy as np
import pytest

from t2t_jax import checks, config
from t2t_jax.config import Config
from t2t_jax.data.cache import Ragged, Split
from t2t_jax.errors import UsageError
from t2t_jax.recipes import RECIPES, recipe
from t2t_jax.runs.identity import key


def test_defaults_are_the_papers_base():
    flat = config.flatten(Config())
    stated = dict(
        N=6, d_model=512, d_ff=2048, h=8, d_k=64, d_v=64, P_drop=0.1, eps_ls=0.1, steps=100_000,
        norm_placement="post", positions="sinusoid", P_drop_attention=0.0, P_drop_ff=0.0,
        warmup=4000, beta1=0.9, beta2=0.98, eps=1e-9, batch_tokens=25_000, vocabulary=37_000,
        beam=4, alpha=0.6, max_extra=50, average=1, smoothing="uniform", schedule="inverse_sqrt",
        lr_scale=1.0,
    )  # fmt: skip
    assert {name: flat[name] for name in stated} == stated


def test_a_flat_mapping_makes_the_config_again():
    mixed = dict(encoder_attention="local:w=3", decoder_attention="performer:m=8,seed=1")
    changes = mixed | dict(d_k=16, seed=3, corpus="grammar", positions="rotary", alpha=0.25)
    changed = config.replace(Config(), **changes)
    flat = json.loads(json.dumps(config.flatten(changed)))
    assert config.replace(Config(), **flat) == changed
    base = config.flatten(Config())
    assert config.difference(changed, Config()) == {n: (x, base[n]) for n, x in changes.items()}


def test_an_integer_in_place_of_a_real_number_is_the_same_run():
    a, b = (config.replace(Config(), eps_ls=x, lr_scale=x + 2) for x in (0, 0.0))
    assert key(a, {}) == key(b, {})


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_is_valid(name):
    assert isinstance(recipe(name), Config)


LSTM = dict(architecture="recurrent", attention_feeding="output")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"d_modle": 3}, ["d_modle", "'d_model'"]),
        ({"n": 3}, ["'n'", "'N'"]),
        ({"norm_placement": "psot"}, ["norm_placement", "'post'"]),
        ({"norm": "rms"}, ["norm", "'rms_norm'"]),
        ({"N": 0}, ["N", "at least 1"]),
        ({"h": 2.5}, ["h", "int"]),
        ({"N": True}, ["N", "int"]),
        ({"P_drop": 1.0}, ["P_drop", "below 1"]),
        ({"beta2": -0.1}, ["beta2"]),
        ({"seed": -1}, ["seed", "negative"]),
        ({"vocabulary": 4}, ["vocabulary", "4 special tokens"]),
        ({"seed": 2**32}, ["seed", "at most"]),
        ({"num_buckets": 256}, ["num_buckets", "at most 255"]),
        ({"eps": 0.0}, ["eps", "positive"]),
        ({"d_model": 5}, ["d_model", "even", "learned"]),
        ({"batch_tokens": 100}, ["batch_tokens", "max_length"]),
        ({"cross_attention": "scaled_dot"}, ["attention", "'scaled_dot_product'"]),
        ({"cross_attention": "sparse_fixed"}, ["one sequence", "cross_attention", "additive"]),
        ({"cross_attention": "coverage"}, ["one query after another", "architecture=recurrent"]),
        ({"decoder_attention": "local_p"}, ["another sequence", "sparse_fixed"]),
        ({"encoder_attention": "local:v=3"}, ["'v'", "w"]),
        ({"encoder_attention": "local:w=0"}, ["w", "at least 1"]),
        ({"encoder_attention": "local:w=x"}, ["w", "whole number"]),
        ({"encoder_attention": "local:w=5000000000"}, ["window", "below 2^30"]),
        ({"encoder_attention": "linear:w=3"}, ["'w'", "none"]),
        ({"decoder_attention": "sparse_fixed:l=2,c=3"}, ["c", "at most l"]),
        ({"decoder_attention": "linear", "positions": "relative"}, ["linear", "relative", "local"]),
        ({"encoder_attention": "general", "positions": "rotary"}, ["general", "rotary"]),
        (
            {"cross_attention": "additive", "P_drop_attention": 0.1},
            ["additive", "P_drop_attention"],
        ),
        ({"d_k": 5, "positions": "rotary"}, ["d_k", "even"]),
        ({"decoder_attention": "scaled_dot_product:power=0"}, ["power", "positive"]),
        ({"encoder_attention": "differential:lambda_init=1"}, ["lambda_init", "at most 0.99."]),
        ({"encoder_attention": "linear,lokal"}, ["'lokal'", "'local'"]),
        ({"encoder_attention": "linear,local:w=0"}, ["w in 'local:w=0'", "at least 1"]),
        ({"encoder_attention": "w=3,local"}, ["no attention 'w=3'"]),
        ({"encoder_attention": "local:w=3,w=5"}, ["local:w=3,w=5", "twice"]),
        ({"corpus": "copy", "task_options": "length=3,length=5"}, ["length", "twice"]),
        ({"decoder_attention": "linear,,local"}, ["no attention ''"]),
        ({"decoder_attention": "sparse_fixed:l=8,c=9,linear"}, ["c in 'sparse_fixed:l=8,c=9'"]),
        ({"decoder_attention": "linear,local_p"}, ["local_p cannot be decoder_attention"]),
        (
            {"decoder_attention": "local,linear", "positions": "relative"},
            ["decoder_attention=linear cannot be combined", "relative"],
        ),
        ({"N": 2, "cross_attention": "linear,linear,local"}, ["3 mechanisms", "at most 2"]),
        (LSTM | {"cross_attention": "dot_product,general"}, ["2 mechanisms", "at most 1"]),
        ({"h_kv": 3}, ["h_kv=3", "does not divide h=8"]),
        ({"h_kv": -1}, ["h_kv", "negative"]),
        ({"d_c": 9, "h_kv": 4}, ["h_kv=4 has no effect with d_c=9"]),
        ({"d_c": 9, "qk_norm": "rms_norm"}, ["qk_norm=rms_norm has no effect with d_c=9"]),
        ({"d_c": 9, "decoder_conv": 3}, ["decoder_conv=3 has no effect with d_c=9"]),
        ({"d_c": 9, "decoder_attention": "local,forgetting"}, ["forgetting cannot", "d_c=9"]),
        ({"d_c": 9, "cross_attention": "cosine"}, ["cosine cannot", "d_c=9"]),
        ({"d_c": 9, "cross_attention": "linear"}, ["linear cannot", "d_c=9", "dot_product"]),
        (LSTM | {"d_c": 9}, ["d_c=9 has no effect"]),
        ({"d_c": 9, "positions": "rotary", "d_k": 2}, ["rotates half of d_k=2", "4 or more"]),
        ({"alpha": math.nan}, ["alpha", "finite", "nan"]),
        ({"lr_scale": math.inf}, ["lr_scale", "finite", "inf"]),
        ({"architecture": "convolutional", "h_kv": 2}, ["h_kv=2 has no effect"]),
        ({"encoder_attention": "differential", "d_k": 5}, ["encoder_attention=", "even, not 5"]),
        (
            LSTM | {"cross_attention": "differential", "d_model": 7},
            ["cross_attention=differential", "even, not 7"],
        ),
        ({"decoder_attention": "differential", "positions": "rotary"}, ["differential", "rotary"]),
    ],
)
def test_bad_values_are_refused(changes, words):
    with pytest.raises(UsageError) as caught:
        config.replace(Config(), **changes)
    assert all(word in str(caught.value) for word in words), caught.value


def lengths(source, target):
    """Returns a split with sentences of up to these numbers of tokens."""
    sides = [Ragged(np.zeros(0), np.array([0, 1, 1 + x])) for x in (source, target)]
    return Split(*sides, None)


@pytest.mark.parametrize(
    ("changes", "translated", "needed"),
    [
        # as translation pads sentences of up to max_length
        (dict(encoder_attention="linformer:n={}", max_length=40), None, 64),
        (dict(encoder_attention="linformer:n={}", max_length=9), None, 16),
        (dict(cross_attention="local:w=2,linformer:n={}", max_length=40), None, 64),
        (dict(decoder_attention="cosformer:M={}", max_length=40), None, 64 + 7 - 1),
        (
            dict(decoder_attention="cosformer:M={}", architecture="decoder", max_length=40),
            None,
            40,
        ),
        # of a split, whatever their length: only those of training are shorter than max_length
        (dict(encoder_attention="linformer:n={}"), False, 33),
        (dict(cross_attention="linformer:n={}"), False, 33),
        (dict(decoder_attention="cosformer:M={}"), False, 40),
        (dict(encoder_attention="linformer:n={}"), True, 64),
        (dict(decoder_attention="cosformer:M={}"), True, 64 + 7 - 1),
        (dict(decoder_attention="cosformer:M={}", architecture="decoder"), False, 40),
        (dict(encoder_attention="linformer:n={}", architecture="encoder"), False, 40),
    ],
)
def test_a_mechanism_needs_positions_for_its_sentences(changes, translated, needed):
    def check(positions):
        texts = {n: x.format(positions) if isinstance(x, str) else x for n, x in changes.items()}
        c = config.replace(Config(), **dict(max_length=16, max_extra=7) | texts)
        if translated is None:
            checks.check_positions(c)
        else:
            checks.check_split(c, "dev", lengths(33, 40), None, translated)

    check(needed)
    with pytest.raises(UsageError, match=f"{needed - 1} positions, "):
        check(needed - 1)


def test_learned_positions_limit_what_is_read_under_teacher_forcing():
    checks.check_split(Config(), "dev", lengths(33, 40), 40, translated=False)
    checks.check_split(Config(), "dev", lengths(33, 40), 39, translated=True)  # it is cut
    with pytest.raises(UsageError, match="dev has a sentence of 40 subwords and the model 39"):
        checks.check_split(Config(), "dev", lengths(33, 40), 39, translated=False)
