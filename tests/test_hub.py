"""What is exported for transformers equals its published definitions, and what it opens."""

import json
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file

from t2t_jax import config
from t2t_jax.config import Config
from t2t_jax.data.vocabulary import BYTES, Vocabulary, of_bytes, of_words, train
from t2t_jax.errors import UsageError
from t2t_jax.inference.convert import choose
from t2t_jax.inference.export import export
from t2t_jax.inference.tokenizer import tokenizer
from t2t_jax.runs.loading import load
from t2t_jax.tokens import BOS, EOS, PAD
from t2t_jax.training.step import shift
from tests import toy
from tests.reference import hub
from tests.small import SENTENCES, SOURCE, TARGET, V, full_logits, make

FILES = "config.json", "data.json", "vocabulary.model"
TEXTS = ["a b c d e hello world", "hello fghij"] * 5
VOCABULARY = Vocabulary(train(TEXTS, V))
MUP = dict(parametrization="mup", mup_width=5)
DECODER = dict(architecture="decoder", norm_placement="pre")
WITHIN = DECODER | dict(corpus="documents", document_attention="within")
LLAMA = DECODER | dict(norm="rms_norm", positions="rotary", feed_forward="swiglu")
MODELS = {  # the first word of a name is transformers' name of the model
    "marian": {},
    "marian gelu": dict(feed_forward="gelu", h=4, h_kv=2, d_k=3, d_v=3) | MUP,
    "marian no-biases": dict(feed_forward="relu_no_bias"),
    "pegasus": dict(norm_placement="pre") | MUP,
    "openai-gpt": dict(architecture="decoder", d_ff=48, feed_forward="gelu"),
    "gpt2": DECODER | MUP,
    "gpt2 learned": DECODER | dict(positions="learned", feed_forward="gelu", h_kv=1),
    "gpt2 halves": DECODER | dict(positions="sinusoid_halves"),
    "llama": LLAMA | dict(h=6, h_kv=2, d_k=8, d_v=8),
    "llama geglu": LLAMA | dict(feed_forward="geglu") | MUP,
}


def small(name, **changes):
    """Returns a model with random parameters, and its config."""
    model, params = make(**dict(d_k=4, d_v=4) | MODELS[name] | changes)
    c = config.replace(Config(), **vars(model.c), max_length=13, batch_tokens=99)
    return model, params, config.replace(c, kernels="auto")


@pytest.mark.parametrize("name", MODELS)
def test_published_definitions_give_the_same_logits(name, tmp_path):
    model, params, c = small(name)
    export(c, params, VOCABULARY, tmp_path / "out", "hf")
    theirs = json.loads((tmp_path / "out" / "config.json").read_text())
    arrays = load_file(tmp_path / "out" / "model.safetensors")
    assert {x.dtype.name for x in arrays.values()} == {"float32"}
    assert theirs["model_type"] == name.split()[0]
    assert theirs["vocab_size"] == V
    ours = full_logits(model, params)
    for own, (source, target) in zip(ours, SENTENCES, strict=True):
        expected = hub.logits(theirs, arrays, source, [BOS, *target[:-1]])
        np.testing.assert_allclose(own[: len(target)], expected, rtol=1e-5, atol=1e-5)
    assert np.ptp(ours) > 0.5


@pytest.mark.parametrize("name", MODELS)
def test_transformers_gives_the_same_logits(name, tmp_path):
    """Of version 4.57 and 5.24."""
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    model, params, c = small(name)
    export(c, params, VOCABULARY, tmp_path / "out", "hf")
    auto = "AutoModelForSeq2SeqLM" if model.translates else "AutoModelForCausalLM"
    opened = getattr(transformers, auto).from_pretrained
    theirs, about = opened(tmp_path / "out", output_loading_info=True)
    assert not any(about.values())  # no parameter is missing or unexpected
    source, target = (torch.tensor(np.array(x), dtype=torch.long) for x in (SOURCE, shift(TARGET)))
    inputs = dict(input_ids=target)
    if model.translates:
        mask = (source != PAD).long()
        inputs = dict(input_ids=source, attention_mask=mask, decoder_input_ids=target)
    with torch.no_grad():
        found = theirs.eval()(**inputs).logits.numpy()
    real = np.asarray(TARGET != PAD)
    expected = np.asarray(full_logits(model, params))
    np.testing.assert_allclose(found[real], expected[real], rtol=1e-5, atol=1e-5)


def test_a_model_without_a_counterpart_is_refused_by_the_field_that_lacks_it():
    for changes, message in (
        (dict(architecture="encoder"), "architecture=encoder, only transformer, decoder."),
        (dict(norm="rms_norm"), "norm=rms_norm with .*, norm_placement=post, only layer_norm."),
        (dict(positions="learned"), "positions=learned with .*, only sinusoid."),
        (dict(positions="sinusoid_halves"), "positions=sinusoid_halves with .*, only sinusoid."),
        (
            dict(feed_forward="swiglu"),
            "feed_forward=swiglu with .*, only relu, relu_no_bias, gelu.",
        ),
        (LLAMA | dict(feed_forward="relu"), "feed_forward=relu with .*, only geglu, swiglu."),
        (dict(decoder_attention="local"), "decoder_attention=local with .*, only scaled_dot_pro"),
        (dict(architecture="decoder", d_ff=1024), "d_ff=1024 with .*, only 2048."),
        (dict(h=4), "d_model=512 with .*, only 256."),
        (WITHIN, "document_attention=within with .*, only across."),
        (LLAMA | dict(qk_norm="rms_norm"), "qk_norm=rms_norm with .*, only none."),
    ):
        with pytest.raises(UsageError, match=f"^transformers does not support {message}"):
            choose(config.replace(Config(), **changes).model, "transformers")
    assert choose(Config().model, "transformers") == "marian"


def test_parameters_of_both_sides_must_agree(tmp_path):
    _, params, c = small("llama")
    params["decoder_1"]["feed_forward"]["b_1"] = np.ones(22, np.float32)
    with pytest.raises(
        UsageError, match="no counterpart of the parameter decoder_1/feed_forward/b_"
    ):
        export(c, params, VOCABULARY, tmp_path / "out", "hf")
    del params["decoder_1"]["feed_forward"]["b_1"], params["decoder_0"]["feed_forward"]["W_3"]
    with pytest.raises(UsageError, match="needs the parameter decoder_0/feed_forward/W_3"):
        export(c, params, VOCABULARY, tmp_path / "out", "hf")
    assert not (tmp_path / "out").exists()


TEXT = "".join(map(chr, range(33, 127))) + "äöü½…日本 ▁\u00a0\t\x02 "
VOCABULARIES = {
    "identity": lambda lines: train(lines, 150),
    "normalised": lambda lines: train(lines, 150, normalization="nmt_nfkc"),
    "documents": lambda lines: train(lines, BYTES + 150, documents=True),
    "bytes": lambda lines: of_bytes(),
}


@pytest.mark.parametrize("name", VOCABULARIES)
def test_the_package_tokenizers_gives_the_same_ids(name):
    tokenizers, rng = pytest.importorskip("tokenizers"), np.random.default_rng(0)
    words = ["".join(rng.choice(list("abcde"), 1 + n % 7)) for n in range(40)]
    lines = [" ".join(rng.choice(words, 12)) for _ in range(200)]
    texts = lines + ["".join(rng.choice(list(TEXT), 20)) for _ in range(200)]
    texts += ["", " ", "a  b ", "<s> a </s>", ".... .......", "a\n\n b\n", "\n a"]
    if name == "normalised":  # it treats a combining character after a space in another way
        texts = [x for x in texts if "\u00a0" not in x]
    vocabulary = Vocabulary(VOCABULARIES[name](texts))
    texts.append("ÞÞ a þÞ")  # unknown characters in a row are one token
    made = tokenizers.Tokenizer.from_str(json.dumps(tokenizer(vocabulary, [BOS], [EOS])))
    made.encode_special_tokens = True
    for text, ids in zip(texts, vocabulary.encode(texts), strict=True):
        assert made.encode(text, add_special_tokens=False).ids == ids, text
        assert made.encode(text).ids == [BOS, *ids, EOS]
        if 3 not in ids:
            assert [made.decode(ids)] == vocabulary.decode([ids])


@pytest.mark.parametrize(
    ("fields", "read"),
    [
        ({}, "<s> A"),
        (dict(corpus="documents"), "<s> </s> A"),
        (dict(corpus="copy", vocabulary=20), "<s> A </s>"),  # a prompt has an end
    ],
)
def test_an_exported_tokenizer_reads_a_text_as_in_training(fields, read, tmp_path):
    _, params, c = small("gpt2", **fields)
    export(config.replace(c, **fields), params, VOCABULARY, tmp_path / "out", "hf")
    made = json.loads((tmp_path / "out" / "tokenizer.json").read_text())["post_processor"]
    pieces = (x.get("SpecialToken") or x["Sequence"] for x in made["single"])
    assert " ".join(x["id"].strip("\x01") for x in pieces) == read


def test_a_vocabulary_of_whole_words_has_no_tokenizer(tmp_path):
    for model in (of_words(["one", "two"]), train(TEXTS, V, whole=["hello"])):
        assert tokenizer(Vocabulary(model), [], [EOS]) is None
    _, params, c = small("marian")
    export(c, params, Vocabulary(train(TEXTS, V, whole=["hello"])), tmp_path / "out", "hf")
    assert not list((tmp_path / "out").glob("tokenizer*"))
    assert "No tokenizer" in (tmp_path / "out" / "README.md").read_text()


def same_parameters(a, b):
    (c, _, ours, words), (d, _, theirs, others) = a, b
    jax.tree.map(np.testing.assert_array_equal, ours, theirs)
    return c == d and words.model == others.model


def test_weights_under_our_own_names_are_read_as_the_run(trained, tmp_path, call, refused):
    (run, cache), out = trained, tmp_path / "out"
    command = ["export", run, "--format", "safetensors", "--out", out]
    assert call(*command).out == f"{out}\n"
    assert {path.name for path in out.iterdir()} == {*FILES, "model.safetensors"}
    assert same_parameters(load(run), load(out))
    arrays = load_file(out / "model.safetensors")
    assert arrays["encoder_0/attention/W_Q"].shape == (32, 2, 16)
    assert {x.dtype.name for x in arrays.values()} == {"float32"}
    scores = call("evaluate", run, "--cache", cache, "--beam", 1).out
    assert call("evaluate", out, "--cache", cache, "--beam", 1).out == scores
    refused(command, out, "is not empty")
    made = json.loads((out / "config.json").read_text())
    (out / "config.json").write_text(json.dumps(made | {"d_ff": 21}))
    refused(["evaluate", out, "--cache", cache], "parameters of another model", "config.json")
    (out / "config.json").write_text(json.dumps(made))
    (out / "model.safetensors").write_bytes(b"{")
    refused(["evaluate", out, "--cache", cache], "model.safetensors is damaged")


def test_a_run_is_exported_to_transformers_by_the_command(trained, tmp_path, call, refused):
    run, out = trained[0], tmp_path / "out"
    call("export", run, "--format", "hf", "--out", out)
    (_, model, params, vocabulary), (source, target) = load(run), ("one two five", "eins zwei")
    source, target = vocabulary.encode([source, target])
    tokens = [BOS, *target], [*source, EOS]
    ours = full_logits(model, params, jnp.array([tokens[1]]), jnp.array([[*target, EOS]]))[0]
    made = json.loads((out / "config.json").read_text())
    theirs = hub.logits(made, load_file(out / "model.safetensors"), *tokens[::-1])
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
    card = (out / "README.md").read_text()
    result = json.loads((run / "result.json").read_text())["scores"]["test"]["bleu"]
    assert f"- test: {result['name']} {result['score']:.2f} [{result['signature']}]" in card
    assert "N 1 (paper: 6)" in card
    assert "AutoModelForSeq2SeqLM" in card
    assert "rule identity" in card
    refused(["translate", out], "config.json", "model_type")


def test_a_package_that_is_missing_is_named(trained, tmp_path, monkeypatch, refused):
    monkeypatch.setitem(sys.modules, "safetensors", None)
    for to in ("hf", "safetensors"):
        command = ["export", trained[0], "--format", to, "--out", tmp_path / to]
        refused(command, "safetensors is not installed: pip install safetensors.")
    assert not list(tmp_path.iterdir())


@pytest.mark.full
def test_a_decoder_of_the_built_in_corpus_becomes_gpt2(tmp_path, call):
    sizes = dict(N=1, d_model=16, d_ff=22, h=2, d_k=8, d_v=8, vocabulary=300, pairs=300)
    words = DECODER | sizes | dict(steps=2, evaluate_every=2, num_buckets=1)
    run, cache = tmp_path / "run", tmp_path / "cache"
    call("train", "grammar", *toy.options(words), "--run", run, "--cache", cache)
    assert call("export", run, "--format", "hf").out == f"{run / 'hf'}\n"
    _, model, params, vocabulary = load(run, translating=False)
    ids = [BOS, *vocabulary.encode(["The dog sleeps."])[0], EOS]
    ours = full_logits(model, params, jnp.array([[EOS]]), jnp.array([ids[1:]]))[0]
    made = json.loads((run / "hf" / "config.json").read_text())
    arrays = load_file(run / "hf" / "model.safetensors")
    theirs = hub.logits(made, arrays, None, ids[:-1])
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
