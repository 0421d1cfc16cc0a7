"""What is exported for transformers computes the same, by its published definitions and by itself."""

import base64
import importlib.util
import json
import shutil
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors.numpy import load_file

from t2t_jax import config
from t2t_jax.config import Config
from t2t_jax.data.vocabulary import Vocabulary, of_bytes, of_words, train
from t2t_jax.errors import UsageError
from t2t_jax.inference.export import check, export
from t2t_jax.inference.tokenizer import tokenizer
from t2t_jax.runs.loading import load
from t2t_jax.tokens import BOS, EOS
from t2t_jax.training.step import shift
from tests.reference import hub
from tests.small import SENTENCES, SOURCE, TARGET, V, full_logits, make

TEXTS = ["a b c d e hello world", "hello fghij"] * 5
DECODER = dict(architecture="decoder", norm_placement="pre")
LLAMA = DECODER | dict(norm="rms_norm", positions="rotary", feed_forward="swiglu")
MODELS = {
    "marian": {},
    "marian-gelu": dict(feed_forward="gelu", h_kv=1, parametrization="mup", mup_width=5),
    "pegasus": dict(norm_placement="pre", parametrization="mup", mup_width=5),
    "openai-gpt": dict(architecture="decoder", d_ff=48, feed_forward="gelu"),
    "gpt2": DECODER | dict(parametrization="mup", mup_width=5),
    "gpt2-learned": DECODER | dict(positions="learned", feed_forward="gelu", h_kv=1),
    "gpt2-halves": DECODER | dict(positions="sinusoid_halves"),
    "llama": LLAMA | dict(h=6, h_kv=2, d_k=8, d_v=8),
    "llama-geglu": LLAMA | dict(feed_forward="geglu", parametrization="mup", mup_width=5),
}


def exported(directory, name, to="hf", **changes):
    """Returns a model, its parameters, and what was written of it."""
    model, params = make(**dict(d_k=4, d_v=4) | MODELS[name] | changes)
    fields = {f: getattr(model.c, f) for f in vars(model.c)}
    c = config.replace(Config(), **fields, max_length=13, batch_tokens=99)
    export(c, params, Vocabulary(train(TEXTS, V)), directory, to)
    return model, params, json.loads((directory / "config.json").read_text())


@pytest.mark.parametrize("name", MODELS)
def test_published_definitions_give_the_same_logits(name, tmp_path):
    model, params, c = exported(tmp_path / "out", name)
    p = load_file(tmp_path / "out" / "model.safetensors")
    assert {x.dtype.name for x in p.values()} == {"float32"}
    assert c["model_type"] == name.partition("-g")[0].partition("-h")[0].replace("-learned", "")
    ours = full_logits(model, params)
    for own, (source, target) in zip(ours, SENTENCES, strict=True):
        tokens = [BOS, *target[:-1]]
        for eps, tolerance in ((1e-6, 1e-5), (None, 1e-4)):  # norms of Marian and PEGASUS add 1e-5
            theirs = hub.logits(c, p, source, tokens, eps)
            np.testing.assert_allclose(own[: len(target)], theirs, rtol=tolerance, atol=tolerance)
    assert np.ptp(ours) > 0.5
