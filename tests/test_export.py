"""CTranslate2, an independent decoder, reads the exported weights and translates alike."""

import json
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from t2t_jax import config
from t2t_jax.config import Config
from t2t_jax.errors import RunError, UsageError
from t2t_jax.inference.convert import choose
from t2t_jax.inference.export import export
from t2t_jax.inference.translate import translate_tokens
from t2t_jax.models.norms import EPSILON
from tests.small import SENTENCES, V, full_logits, make

PIECES = ["<pad>", "<s>", "</s>", "<unk>", *(f"▁{i}" for i in range(4, V))]
VOCABULARY = SimpleNamespace(size=V, pieces=lambda ids: [PIECES[i] for i in ids], model=b"model")
EXTRA = 4
MODELS = {
    "paper": {},
    "tensor2tensor": dict(norm_placement="pre", positions="sinusoid_halves"),
    "learned": dict(positions="learned", max_length=17),
    "gated": dict(norm_placement="pre", norm="rms_norm", feed_forward="swiglu"),
    "geglu": dict(feed_forward="geglu"),
    "gelu": dict(feed_forward="gelu", norm="rms_norm"),
    "no-biases": dict(feed_forward="relu_no_bias"),
    "multi-query": dict(h_kv=1),
    "mup": dict(parametrization="mup", mup_width=3),
}
BY_DEFAULT = "paper", "gated"
FIELDS = (
    "positions norm norm_placement feed_forward parametrization mup_width h_kv embeddings".split()
)


def exported(directory, **changes):
    model, params = make(d_k=6, d_v=6, max_extra=EXTRA, **changes)  # h d_k is not d_model
    c = config.replace(
        Config(),
        **{f: getattr(model.c, f) for f in FIELDS},
    )
    c = config.replace(c, N=2, d_model=12, d_ff=22, h=3, d_k=6, d_v=6)
    export(c, params, VOCABULARY, directory)
    return model, params


def pieces_of(ids):
    return [PIECES[i] for i in ids[:-1]]  # without EOS


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param(changes, marks=[pytest.mark.full] * (name not in BY_DEFAULT), id=name)
        for name, changes in MODELS.items()
    ],
)
def test_ctranslate2_gives_the_same_scores_and_translations(changes, tmp_path):
    ctranslate2 = pytest.importorskip("ctranslate2")
    model, params = exported(tmp_path / "out", **changes)
    translator = ctranslate2.Translator(str(tmp_path / "out"), compute_type="float32")
    log_p = np.asarray(jax.nn.log_softmax(full_logits(model, params)))
    for own, (source, target) in zip(log_p, SENTENCES, strict=True):
        (scored,) = translator.score_batch([pieces_of(source)], [pieces_of(target)])
        expected = own[np.arange(len(target)), target]
        np.testing.assert_allclose(scored.log_probs, expected, rtol=1e-4, atol=1e-4)
    decoding = config.Decoding(beam=1, max_extra=EXTRA)
    translations = translate_tokens(
        model, params, [source for source, _ in SENTENCES], decoding, warn=print
    )
    for (source, _), ours in zip(SENTENCES, translations, strict=True):
        (theirs,) = translator.translate_batch(
            [pieces_of(source)],
            beam_size=1,
            max_decoding_length=len(source) - 1 + EXTRA,
            suppress_sequences=[["<pad>"], ["<s>"]],
        )
        assert theirs.hypotheses[0] == [PIECES[i] for i in ours]
    assert len({tuple(row) for row in translations}) == len(SENTENCES)


def test_options_that_ctranslate2_lacks_are_refused():
    for changes, message in (
        (dict(encoder_attention="local"), "encoder_attention=local"),
        (dict(cross_attention="scaled_dot_product:power=1"), "cross_attention=scaled_dot_p"),
        (dict(positions="rotary"), "positions=rotary"),
        (dict(logit_cap=30), "logit_cap=30"),
        (dict(embeddings="untied"), "embeddings=untied"),
        (dict(norm="layer_norm_no_bias"), "norm=layer_norm_no_bias, only layer_norm"),
        (dict(norm_placement="parallel"), "norm_placement=parallel"),
        (dict(attention_gate="head"), "attention_gate=head"),
        (dict(decoder_conv=4), "decoder_conv=4, only 0"),
        (dict(d_c=128), "d_c=128, only 0"),
        (dict(positions="none"), "positions=none"),
        (dict(qk_norm="rms_norm"), "qk_norm=rms_norm, only none"),
        (dict(d_v=32), "d_v=32, only 64"),
        (dict(architecture="recurrent"), "architecture=recurrent"),
    ):
        with pytest.raises(UsageError, match=message):
            choose(config.replace(Config(), **changes).model, "CTranslate2")


@pytest.mark.parametrize(
    "path", ["encoder_1/feed_forward/W_3", "decoder_0/attention/W_gate", "decoder_norm/extra"]
)
def test_a_parameter_without_a_counterpart_is_refused(path, tmp_path):
    pytest.importorskip("ctranslate2")
    _, params = make(d_k=6, d_v=6, norm_placement="pre", max_extra=EXTRA)
    c = config.replace(Config(), norm_placement="pre", N=2, d_model=12, d_ff=22, h=3, d_k=6, d_v=6)
    *names, last = path.split("/")
    subtree = params
    for name in names:
        subtree = subtree[name]
    subtree[last] = np.ones(3, np.float32)
    with pytest.raises(UsageError, match=f"no counterpart of the parameter {path},"):
        export(c, params, VOCABULARY, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_no_existing_file_is_overwritten(tmp_path):
    pytest.importorskip("ctranslate2")
    exported(tmp_path / "out")
    files = {p.name for p in (tmp_path / "out").iterdir()}
    assert files == {"config.json", "model.bin", "shared_vocabulary.json", "vocabulary.model"}
    written = json.loads((tmp_path / "out" / "config.json").read_text())
    assert written["layer_norm_epsilon"] == EPSILON  # too small to change a translation
    with pytest.raises(UsageError, match="is not empty"):
        exported(tmp_path / "out")
    (tmp_path / "file").touch()
    for place in (tmp_path / "file", Path(".")):
        with pytest.raises(UsageError, match="cannot become a new directory"):
            exported(place)
    with pytest.raises(RunError, match="cannot write"):
        exported(tmp_path / "file" / "out")
    assert {p.name for p in tmp_path.iterdir()} == {"out", "file"}
