"""Corpora of documents: from files to tables of likelihoods."""

import gzip
import json
import lzma
import re

import jax
import numpy as np
import pyarrow.parquet
import pytest

from t2t_jax.attention import choice
from t2t_jax.attention.registry import MECHANISMS
from t2t_jax.attention.visibility import Visibility
from t2t_jax.config import Config, Data, replace
from t2t_jax.data import documents
from t2t_jax.data.cache import Split, packed, ragged
from t2t_jax.data.prepare import open_corpus
from t2t_jax.data.vocabulary import BYTES, Vocabulary, of_bytes, train
from t2t_jax.errors import UsageError
from t2t_jax.evaluation.predictions import token_likelihoods
from t2t_jax.inference import sample
from t2t_jax.ops import tiles
from t2t_jax.runs import loading
from t2t_jax.tokens import BOS, EOS
from tests import toy
from tests.small import make

TEXTS = [f"The {a} sees a {b}.\nThen   it {c} away." for a in ("dog", "cat", "fox")
         for b in ("bird", "mouse", "wolf", "hen") for c in ("runs", "walks", "swims")]  # fmt: skip
STRANGE = "  Ünknown ▁ <s> 日本\n\n\tend \x02"
SMALL = dict(N=1, d_model=16, d_ff=20, h=2, d_k=8, d_v=8, max_length=13, batch_tokens=200)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Documents in plain text, in two compressed files, and as JSON lines."""
    folder = tmp_path_factory.mktemp("documents")
    halves = ["\n\n".join(TEXTS[half::2]) + "\n" for half in (0, 1)]
    (folder / "train1.txt.gz").write_bytes(gzip.compress(halves[0].encode()))
    (folder / "train2.txt.xz").write_bytes(lzma.compress(f"\n\n{halves[1]}\n \n".encode()))
    (folder / "dev.txt").write_text("\n\n\n".join(TEXTS[:5]))
    lines = [json.dumps({"text": x}) for x in [*TEXTS[5:8], STRANGE]]
    (folder / "test.jsonl").write_text("\n".join(lines) + "\n")
    return dict(train=f"{folder}/train*", dev=f"{folder}/dev.txt", test=f"{folder}/test.jsonl")


@pytest.mark.parametrize("size", [BYTES, 310])
def test_every_text_is_decoded_as_it_was_encoded(size):
    lines = "\n".join(TEXTS).split("\n")
    model = of_bytes() if size == BYTES else train(lines, size, documents=True)
    vocabulary, texts = Vocabulary(model), [*TEXTS[:3], STRANGE.replace("\t", " "), "", "a\n \n b"]
    assert vocabulary.size == size
    plain = [text.replace("\x02", " ") for text in texts]  # control characters are spaces
    assert vocabulary.decode(vocabulary.encode(texts)) == plain
    if size == BYTES:
        assert vocabulary.encode(texts) == [[4 + byte for byte in x.encode()] for x in plain]


def test_documents_are_read_from_files_of_all_kinds(files, tmp_path):
    data = open_corpus(Data(corpus="documents", vocabulary=310, **files), tmp_path, toy.quiet)
    train = [data.vocabulary.decode([data.splits["train"].target[i]])[0] for i in range(36)]
    assert train == TEXTS[::2] + TEXTS[1::2]
    assert len(data.splits["train"].target) == 36
    assert data.splits["dev"].references == TEXTS[:5]
    assert data.splits["test"].references == [*TEXTS[5:8], "Ünknown ▁ <s> 日本\n\n end"]


def test_a_pattern_may_have_folders_at_any_depth_and_reads_a_file_once(files, tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    for i, folder in enumerate(("", "a", "a/b")):
        (tmp_path / folder / "x.txt").write_text(TEXTS[i])
    paths = dict(dev=f"{tmp_path}/a/x.txt,{tmp_path}/**/*.txt")
    data = Data(corpus="documents", vocabulary=310, **files | paths)
    dev = open_corpus(data, tmp_path / "cache", toy.quiet).splits["dev"].references
    assert dev[0] == TEXTS[1]
    assert sorted(dev[1:]) == sorted([TEXTS[0], TEXTS[2]])


def test_equal_bytes_under_another_name_are_read_as_their_name_says(files, tmp_path):
    lines = "".join(json.dumps({"text": x}) + "\n" for x in TEXTS)
    for name in ("lines[1].txt", "lines.JSONL", "lines.jsonl.txt"):  # no pattern, but a name
        path = tmp_path / name
        path.write_text(lines)
        data = Data(corpus="documents", vocabulary=310, **files | dict(dev=str(path)))
        dev = open_corpus(data, tmp_path / "cache", toy.quiet).splits["dev"].references
        assert (dev == TEXTS) == (name == "lines.JSONL")


@pytest.mark.parametrize("name", ["dev.txt", "dev.jsonl"])
def test_a_carriage_return_before_a_newline_is_no_text(name, files, tmp_path):
    text = "\r\n\r\n".join(x.replace("\n", "\r\n") for x in TEXTS[:5])
    lines = "".join(json.dumps({"text": x}) + "\n" for x in text.split("\r\n\r\n"))
    (tmp_path / name).write_bytes((text if name == "dev.txt" else lines).encode())
    data = Data(corpus="documents", vocabulary=310, **files | dict(dev=f"{tmp_path}/{name}"))
    dev = open_corpus(data, tmp_path / "cache", toy.quiet).splits["dev"].references
    assert dev == TEXTS[:5]


def test_the_column_of_a_parquet_file_is_read_as_documents(tmp_path):
    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(
        pyarrow.table({"n": [1, 2, 3], "text": [*TEXTS[:2], STRANGE]}), path
    )
    assert [raw.target.decode() for raw in documents._read(path)] == [*TEXTS[:2], STRANGE]
    pyarrow.parquet.write_table(pyarrow.table({"words": TEXTS}), path)
    with pytest.raises(
        UsageError, match=r'a.parquet cannot be read as Parquet with a column "text"'
    ):
        next(documents._read(path))
    path.write_bytes(b"PAR1")
    with pytest.raises(UsageError, match=r"a.parquet cannot be read as Parquet"):
        next(documents._read(path))


@pytest.mark.parametrize(
    ("changes", "content", "words"),
    [
        (dict(dev=""), "", "needs dev"),
        (dict(dev="absent/*.txt"), "", "there is no file absent/"),
        (dict(dev="{}/bad.jsonl"), '{"text": "a"}\n{"words": 3}\n', "bad.jsonl, line 2,"),
        (dict(dev="{}/bad.txt"), "\n \n", "no text in"),
        (dict(dev="{}/bad.json"), '{"text": "\\ud800"}\n', "1 of the 1 documents .* is document 1"),
        (dict(vocabulary=BYTES, normalization="nmt_nfkc"), "", "keeps all bytes: leave normaliz"),
    ],
)
def test_files_that_are_no_documents_are_refused(changes, content, words, files, tmp_path):
    changes = {n: x.format(tmp_path) if n == "dev" else x for n, x in changes.items()}
    (tmp_path / changes["dev"].rpartition("/")[2]).write_text(content) if content else None
    data = Data(**dict(corpus="documents", vocabulary=310) | files | changes)
    with pytest.raises(UsageError, match=words):
        open_corpus(data, tmp_path, toy.quiet)


def packed_split():
    """Three documents of 1, 17 and 7 tokens as sequences of 6, and the documents."""
    rng = np.random.default_rng(0)
    documents = [[*rng.integers(4, 29, n), EOS] for n in (0, 16, 6)]
    return packed(Split(ragged([[EOS]] * 3), ragged(documents), None), 6, train=False), documents


def test_documents_follow_each_other_in_sequences_of_one_length():
    split, documents = packed_split()
    assert split.target.lengths.tolist() == [6, 6, 6, 6, 1]
    flat = np.concatenate([split.target[i] for i in range(5)])
    np.testing.assert_array_equal(flat, np.concatenate(documents))
    rest = packed(Split(split.source, split.documents, None), 6, train=True)
    assert rest.target.lengths.tolist() == [6, 6, 6, 6]


@pytest.mark.full
def test_every_token_is_predicted_from_those_before_it_in_its_sequence():
    """The oracle feeds each sequence alone."""
    model, params = make(architecture="decoder")
    split, documents = packed_split()
    nats = []
    for i in range(5):
        row = split.target[i]
        inputs = np.array([[BOS, *row[:-1]]], np.int32)
        logits = model.apply({"params": params}, None, inputs, method="decode")[0]
        wide = np.asarray(logits, np.float64)
        nats += [np.logaddexp.reduce(z) - z[word] for z, word in zip(wide, row, strict=True)]
    batch = {"source": np.full((3, 1), EOS), "target": np.zeros((3, 6), np.int32)}
    batches = []
    for rows in ([0, 3, 4], [2, 1]):
        target = batch["target"].copy()
        for i, row in enumerate(rows):
            target[i, : len(split.target[row])] = split.target[row]
        batches.append((np.array(rows), {**batch, "target": target}))
    found = token_likelihoods(model, params, split, batches)
    assert [*map(len, found)] == [*map(len, documents)]
    np.testing.assert_allclose(np.concatenate(found), nats, rtol=1e-5)


@pytest.mark.full
def test_a_study_of_documents_compares_likelihoods(files, tmp_path, call):
    """From files to a table; NLL, perplexity and bits per byte are of the same outputs."""
    (tmp_path / "own.py").write_text(
        "from t2t_jax.study import Row, study\n"
        '@study("Own text", columns="", split="test",\n'
        '       base=dict(architecture="decoder", corpus="documents"))\n'
        "def own():\n"
        '    return [Row("base"), Row("local", dict(decoder_attention="local:w=4"))]\n'
    )
    fields = files | SMALL | dict(vocabulary=310, steps=4, warmup=2, evaluate_every=4)
    study = [tmp_path / "own.py", "--cache", tmp_path / "cache"]
    settings = ["--preset", "text", "--seeds", "2", "--workers", "1", *toy.options(fields)]
    assert "NLL" in call("run", *study, *settings).out
    call("table", *study, "--format", "json", "--metrics", "NLL,perplexity,bits per byte")
    directory = next((tmp_path / "runs").glob("*/result.json")).parent
    lines = (directory / "test.de").read_text().splitlines()
    assert len(lines) == 4
    each = np.array(" ".join(lines).split(), float)
    nats, tokens = each.sum(), len(each)
    size = sum(len(x.encode()) for x in [*TEXTS[5:8], "Ünknown ▁ <s> 日本\n\n end"])
    said = call("evaluate", directory, "--cache", tmp_path / "cache").out
    for name, value in (
        ("NLL  ", nats / tokens),
        ("perplexity", np.exp(nats / tokens)),
        ("bits per byte", nats / np.log(2) / size),
    ):
        assert float(re.search(rf"([\d.]+)  {name}", said)[1]) == pytest.approx(value, abs=0.006)


@pytest.mark.parametrize(("attention", "before"), [("across", [BOS, EOS]), ("within", [EOS])])
def test_generated_text_begins_as_documents_do(
    attention, before, files, tmp_path, call, monkeypatch
):
    """In training, attention within a document does not see what stands before its first token."""
    fields = files | SMALL | dict(vocabulary=310, steps=1, evaluate_every=1)
    options = toy.options(
        fields | dict(document_attention=attention, decoder_attention="cosformer:M=33")
    )
    run, cache = tmp_path / "run", ["--cache", tmp_path / "cache"]
    call("train", "text", "--run", run, *cache, *options)
    vocabulary, prompts = loading.load(run, toy.quiet, translating=False)[3], []

    def generate(model, params, prompt, *limits):
        prompts.append(prompt)
        assert limits == (9, 4, sample.Choice(0.3, 7, 0.5))
        return [[token] for token in vocabulary.encode(["sees a Ünknown 日本"])[0]]

    monkeypatch.setattr(sample, "generate", generate)
    flags = "--temperature", "0.3", "--top-k", "7", "--top-p", "0.5", "--seed", "4", "--tokens", "9"
    (tmp_path / "lines").write_text("The dog\n")
    with (tmp_path / "lines").open() as lines:
        monkeypatch.setattr("sys.stdin", lines)
        printed = call("generate", run, *cache, *flags).out
        assert printed == "The dog sees a Ünknown 日本\n"
        lines.seek(0)
        assert "the model has 33 positions" in call("generate", run, *cache, code=2).err
    assert prompts == [before + vocabulary.encode(["The dog"])[0]]


ABLE = [n for n, x in MECHANISMS.items() if "decoder" in x.roles and "documents" in x.supports]
DEFAULT = "scaled_dot_product", "sparse_fixed", "linear"  # others: --full
ON_GPU = "gated_linear", "gated_delta", "kimi_delta"  # in another form
ANCHORED = {"block_local", "sparse_fixed"}  # their blocks begin at the first of the sequence


@pytest.mark.parametrize(
    ("name", "platform"),
    [
        pytest.param(*x, marks=[pytest.mark.full] * (x[0] not in DEFAULT))
        for x in [*((n, "cpu") for n in ABLE), *((n, "gpu") for n in ON_GPU)]
    ],
)
def test_no_query_sees_another_document(name, platform, monkeypatch):
    """Other documents change nothing; and a document alone has the same output, if not anchored."""
    monkeypatch.setattr(tiles, "_platform", lambda: platform)
    rng, (B, T, h, d) = np.random.default_rng(0), (2, 83, 3, 6)
    module = choice.build(name)
    width = d + MECHANISMS[name].gates(d)
    q, k, v = (rng.normal(size=(B, T, h, w)).astype(np.float32) for w in (d, width, 5))
    lengths = np.array([T, 70], np.int32)
    ends = [[7, 8], [5, 67]]
    first = np.array([[max([0, *(x for x in row if x <= t)]) for t in range(T)] for row in ends])
    seen = Visibility(lengths, lengths, True, first)
    variables = jax.jit(module.init)(jax.random.key(0), q, k, v, seen)
    attend = jax.jit(lambda q, k, v, seen: module.apply(variables, q, k, v, seen))
    out = attend(q, k, v, seen)
    for row, begin, end in ((0, 7, 8), (0, 8, T), (1, 5, 67)):  # longer than a chunk of a memory
        own = np.zeros((B, T, 1, 1), bool)
        own[row, begin:end] = True
        other = attend(*(np.where(own, x, 3 * x + 1) for x in (q, k, v)), seen)
        np.testing.assert_allclose(other[row, begin:end], out[row, begin:end], atol=1e-5)
        if name not in ANCHORED:
            alone = (x[row : row + 1, begin:end] for x in (q, k, v))
            expected = attend(*alone, Visibility(causal=True))
            np.testing.assert_allclose(out[row, begin:end], expected[0], atol=1e-5)
    assert np.abs(attend(q, k, v, Visibility(lengths, lengths, True)) - out).max() > 1e-3


@pytest.mark.full
def test_a_decoder_begins_anew_after_the_end_of_a_document():
    """Without positions, a document has the same logits wherever it stands."""
    fields = dict(architecture="decoder", positions="none", corpus="documents")
    model, params = make(**fields, document_attention="within")
    across, _ = make(**fields)
    variables, document = {"params": params}, [EOS, 9, 23, 11, 17]
    tokens = np.array([[BOS, 5, 7, *document, EOS, 8]])
    together = model.apply(variables, None, tokens, method="decode")[0, 3:8]
    alone = across.apply(variables, None, np.array([document]), method="decode")
    np.testing.assert_allclose(together, alone[0], atol=1e-5)


def test_mechanisms_that_mix_documents_are_refused():
    within = dict(architecture="decoder", corpus="documents", document_attention="within")
    for name in ("lsh", "streaming", "sparse_random"):
        with pytest.raises(UsageError, match="document_attention=within"):
            replace(Config(), **within, decoder_attention=name)
    with pytest.raises(UsageError, match="decoder_conv=3 crosses the borders of documents"):
        replace(Config(), **within, decoder_conv=3)
    with pytest.raises(UsageError, match="has no effect"):
        replace(Config(), **within | dict(corpus="grammar"))
