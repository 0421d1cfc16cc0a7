"""Corpora are cached and read back, and malformed files are refused."""

import bz2
import dataclasses
import functools
import gzip
import hashlib
import inspect
import lzma
import multiprocessing
import os
import random
import shutil
from pathlib import Path

import numpy as np
import pyarrow
import pytest

from t2t_jax import config, tokens
from t2t_jax.config import Data
from t2t_jax.data import cache, tokenise, vocabulary
from t2t_jax.data.cache import open_dataset
from t2t_jax.data.corpora import CORPORA, parse_options
from t2t_jax.data.diagnostics import generate
from t2t_jax.data.prepare import open_corpus, opener, prepare
from t2t_jax.errors import RunError, UsageError
from t2t_jax.evaluation.contrastive import Judgement
from t2t_jax.evaluation.metrics import METRICS, metric_of, metrics_of, outputs_of, score
from t2t_jax.runs import judging, loading, study_file
from t2t_jax.runs.context import as_read
from t2t_jax.tokens import EOS
from tests.process import python
from tests.toy import quiet

EN = "the a dog cat house street sees loves buys green big old".split()
DE = "der die das Hund Katze Haus Straße sieht liebt kauft grün groß alt".split()


def sentences(words, n, seed):
    draw = random.Random(seed)
    return [" ".join(draw.choices(words, k=draw.randint(2, 9))) for _ in range(n)]


def write(prefix, en, de, suffix=""):
    for language, lines in (("en", en), ("de", de)):
        opener = gzip.open if suffix else open
        with opener(f"{prefix}.{language}{suffix}", "wb") as file:
            file.write(b"".join(x if isinstance(x, bytes) else f"{x}\n".encode() for x in lines))


@pytest.fixture
def texts(tmp_path):
    """A small English-German corpus on disk: split -> (prefix, English, German)."""
    splits = {}
    for seed, (split, n) in enumerate({"train": 300, "dev": 23, "test": 17}.items()):
        prefix = tmp_path / f"my.{split}"
        en, de = sentences(EN, n, seed), sentences(DE, n, seed + 9)
        write(prefix, en, de)
        splits[split] = (prefix, en, de)
    return splits


def request(texts, **changes):
    paths = {split: str(prefix) for split, (prefix, _, _) in texts.items()}
    return Data(**{"corpus": "text", "vocabulary": 75, "max_length": 64, **paths, **changes})


def tree(directory):
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def test_a_prepared_corpus_is_read_back(texts, tmp_path):
    lines = []
    dataset = open_dataset(prepare(request(texts), tmp_path / "cache", lines.append))
    assert lines == [
        "text en-de: train 300 pairs kept, 0 longer than 64, 0 empty, 0 not UTF-8; dev 23; "
        "test 17; vocabulary 75; unknown tokens: train 0.00%, dev 0.00%, test 0.00%"
    ]
    assert list(dataset.splits) == ["train", "dev", "test"]
    assert dataset.vocabulary.size == 75
    assert dataset.meta["vocabulary"]["fingerprint"] == dataset.vocabulary.fingerprint
    for name, split in dataset.splits.items():
        _, *sides = texts[name]
        for side, written in zip((split.source, split.target), sides, strict=True):
            assert isinstance(side.tokens, np.memmap)
            rows = [side[i].tolist() for i in range(len(side))]
            assert [row.count(EOS) for row in rows] == [1] * len(written)
            assert [row[-1] for row in rows] == [EOS] * len(written)
            assert side.lengths.tolist() == [len(row) for row in rows]
            assert dataset.vocabulary.decode(rows) == written
        if name != "train":
            assert [split.sources, split.references] == sides
    with pytest.raises(UsageError, match="only dev and test splits keep their raw texts"):
        _ = dataset.splits["train"].references


def test_training_pairs_in_other_splits_are_counted(texts, tmp_path):
    (train, en, de), (dev, *_), (test, *_) = texts.values()
    write(dev, [*en[:7], *en[7:9]], [*de[:7], *de[8:10]])  # two with other translations
    write(test, [en[11], "", "a"], [de[11], "", "b"])
    write(train, [*en, en[11], ""], [*de, de[11], ""])
    lines = []
    prepare(request(texts), tmp_path / "cache", lines.append)
    prepare(request(texts, pairs=40), tmp_path / "cache", lines.append)
    assert "train 301 pairs kept, 9 also in other splits, 0 longer than 64, 1 empty" in lines[0]
    assert "kept (40 of them are trained on), 9 also in other splits, 0 longer" in lines[1]


def test_an_existing_cache_is_not_rebuilt(texts, tmp_path, monkeypatch):
    directory = prepare(request(texts), tmp_path, quiet)
    monkeypatch.setattr(tokenise, "build", None)
    assert prepare(request(texts, batch_tokens=999, num_buckets=3), tmp_path, quiet) == directory


@pytest.mark.parametrize("change", ["content", "vocabulary", "max_length", "direction"])
def test_a_change_of_the_data_changes_the_cache_directory(texts, tmp_path, change):
    data = request(texts)
    before = prepare(data, tmp_path, quiet)
    if change == "content":
        prefix, en, de = texts["dev"]
        write(prefix, [*en[1:], "a cat"], de)
    else:
        fields = {
            "vocabulary": {"vocabulary": 74},
            "max_length": {"max_length": 63},
            "direction": {"source": "de", "target": "en"},
        }
        data = dataclasses.replace(data, **fields[change])
    after = prepare(data, tmp_path, quiet)
    assert after != before
    if change != "max_length":  # no sentence here is that long
        assert open_dataset(after).fingerprint != open_dataset(before).fingerprint


@pytest.mark.parametrize("changed", [cache, tokenise, tokens, vocabulary])
def test_a_change_of_the_tokeniser_is_not_answered_from_the_cache(
    changed, texts, tmp_path, monkeypatch
):
    before, source = prepare(request(texts), tmp_path, quiet), inspect.getsource
    new = lambda module: source(module) + "#" * (module is changed)  # noqa: E731
    monkeypatch.setattr(inspect, "getsource", new)
    assert prepare(request(texts), tmp_path, quiet) != before


def test_other_paths_to_the_same_content_share_a_cache(texts, tmp_path):
    before = prepare(request(texts), tmp_path / "cache", quiet)
    _, en, de = texts["train"]
    write(tmp_path / "elsewhere", en, de)
    moved = request(texts, train=str(tmp_path / "elsewhere"))
    assert prepare(moved, tmp_path / "cache", quiet) == before


def test_a_cache_made_elsewhere_needs_no_files(texts, tmp_path):
    directory = prepare(request(texts), tmp_path / "cache", quiet)
    Path(f"{texts['train'][0]}.en").unlink()
    lines = []
    assert prepare(request(texts), tmp_path / "cache", lines.append) == directory
    assert str(texts["train"][0]) in lines[0]
    assert str(directory) in lines[0]
    (tmp_path / "cache" / "other").mkdir()
    (tmp_path / "cache" / "other" / "meta.json").write_text("{")  # a damaged corpus
    assert prepare(request(texts), tmp_path / "cache", quiet) == directory
    with pytest.raises(UsageError, match="put the en side of train there"):
        prepare(request(texts, vocabulary=74), tmp_path / "cache", quiet)
    with pytest.raises(UsageError, match="put the en side of train there"):
        prepare(request(texts, source="de", target="en"), tmp_path / "cache", quiet)


def test_files_of_another_folder_never_stand_in_for_missing_ones(texts, tmp_path, monkeypatch):
    data = request(texts, **{split: f"my.{split}" for split in texts})
    monkeypatch.chdir(tmp_path)
    prepared = prepare(data, tmp_path / "cache", quiet)
    Path("my.dev.de").unlink()
    assert prepare(data, tmp_path / "cache", quiet) == prepared
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    with pytest.raises(UsageError, match=r"the de side of dev|the en side of train"):
        prepare(data, tmp_path / "cache", quiet)


def test_one_of_several_corpora_of_the_same_options_is_not_guessed(texts, tmp_path):
    prefix, en, de = texts["train"]
    directory = prepare(request(texts), tmp_path / "cache", quiet)
    shutil.copytree(directory, directory.with_name("as another version prepared it"))
    Path(f"{prefix}.en").unlink()
    prepared = prepare(request(texts), tmp_path / "cache", quiet)
    assert open_dataset(prepared).fingerprint == open_dataset(directory).fingerprint
    write(prefix, [*en, "another line"], [*de, "noch eine Zeile"])
    prepare(request(texts), tmp_path / "cache", quiet)
    Path(f"{prefix}.en").unlink()
    with pytest.raises(UsageError, match="put the en side of train there"):
        prepare(request(texts), tmp_path / "cache", quiet)


def test_the_corpus_that_was_asked_for_is_found_beside_one_with_a_test_set(texts, tmp_path):
    without = request({name: x for name, x in texts.items() if name != "test"})
    made = prepare(without, tmp_path / "cache", quiet), prepare(request(texts), tmp_path / "cache")
    Path(f"{texts['train'][0]}.en").unlink()
    asked = without, request(texts)
    assert made == tuple(prepare(x, tmp_path / "cache", quiet) for x in asked)


def test_a_path_need_not_be_unicode(texts, tmp_path):
    folder = Path(os.fsdecode(bytes(tmp_path) + b"/\xfcb"))
    folder.mkdir()
    copies = {name: (folder / name, en, de) for name, (_, en, de) in texts.items()}
    for copy in copies.values():
        write(*copy)
    made = prepare(request(copies), tmp_path / "cache", quiet)
    assert prepare(request(copies), tmp_path / "cache", quiet) == made


def test_a_byte_order_mark_is_not_text(texts, tmp_path):
    prefix, en, de = texts["test"]
    write(prefix, [b"\xef\xbb\xbf" + en[0].encode() + b"\n", *en[1:]], de)
    dataset = open_dataset(prepare(request(texts), tmp_path / "c", quiet))
    assert dataset.splits["test"].sources == en


def test_dropped_pairs_are_counted_by_reason(texts, tmp_path):
    prefix, en, de = texts["train"]
    long = " ".join(EN * 5)
    write(
        prefix,
        [*en, "", "a dog", " \t", b"caf\xe9\n", long, "a cat", "\u200b", "cat"],
        [*de, "der", "  ", "", "das", "die", long, "die", "\u200b"],
    )
    prefix, en, de = texts["dev"]
    write(prefix, [*en, "", long], [*de, "der", "die"])
    lines = []
    dataset = open_dataset(prepare(request(texts, max_length=60), tmp_path / "c", lines.append))
    assert "train 300 pairs kept, 2 longer than 60, 5 empty, 1 not UTF-8; dev 24 (1" in lines[0]
    assert len(dataset.splits["train"].source) == 300
    assert dataset.splits["dev"].sources == [*en, long]
    assert max(dataset.splits["dev"].source.lengths) > 60


def test_the_limit_counts_eos(texts, tmp_path):
    longest = open_dataset(prepare(request(texts), tmp_path / "c", quiet)).splits["train"]
    limit = int(max(longest.source.lengths.max(), longest.target.lengths.max()))
    for cut, dropped in ((limit, False), (limit - 1, True)):
        dataset = open_dataset(prepare(request(texts, max_length=cut), tmp_path / "c", quiet))
        assert (dataset.meta["splits"]["train"]["long"] > 0) == dropped
        train = dataset.splits["train"]
        assert max(train.source.lengths.max(), train.target.lengths.max()) <= cut


def test_only_a_newline_ends_a_line(texts, tmp_path):
    prefix, en, de = texts["test"]
    write(prefix, [*en, "a\x85dog\u2028a\rcat\r"], [*de, "der\x0bHund"])
    dataset = open_dataset(prepare(request(texts), tmp_path / "c", quiet))
    assert dataset.splits["test"].sources[-1] == "a dog a cat"
    assert dataset.splits["test"].references[-1] == "der Hund"


def test_samples_of_pairs_are_nested_and_leave_the_rest_as_it_is(texts, tmp_path, monkeypatch):
    def opened(pairs):
        return open_corpus(request(texts, pairs=pairs), tmp_path / "cache", report=quiet)

    def pairs_of(dataset):
        sides = dataset.splits["train"].source, dataset.splits["train"].target
        rows = zip(*([side[i].tolist() for i in range(len(side))] for side in sides), strict=True)
        return list(rows)

    whole, large, small = (opened(n) for n in (0, 40, 13))
    every = pairs_of(whole)
    assert len(pairs_of(large)) == 40
    assert [pair for pair in every if pair in pairs_of(large)] == pairs_of(large)
    assert [pair for pair in pairs_of(large) if pair in pairs_of(small)] == pairs_of(small)
    assert pairs_of(large) != every[:40]
    assert len({small.fingerprint, large.fingerprint, whole.fingerprint}) == 3
    assert opened(13).fingerprint == small.fingerprint
    with monkeypatch.context() as m:
        m.setattr(np.random, "default_rng", lambda _, draw=np.random.default_rng: draw(1))
        assert opened(13).fingerprint != small.fingerprint  # other sentences
    assert small.splits["dev"].references == whole.splits["dev"].references
    assert pairs_of(opened(13)) == pairs_of(small)
    with pytest.raises(UsageError, match=f"exceeds the {len(every)} training pairs of corpus text"):
        opened(len(every) + 1)


def test_a_large_corpus_is_sampled_evenly(texts, tmp_path, monkeypatch):
    assert tokenise.sample(range(100), 100) == (list(range(100)), 1)
    assert tokenise.sample(range(101), 100) == (list(range(0, 101, 2)), 2)
    assert tokenise.sample(range(1000), 7) == (list(range(0, 1000, 256)), 256)
    monkeypatch.setattr(tokenise, "SAMPLE", 150)
    monkeypatch.setattr(tokenise, "CHUNK", 7)
    meta = open_dataset(prepare(request(texts), tmp_path / "c", quiet)).meta
    assert (meta["vocabulary"]["trained_on_pairs"], meta["vocabulary"]["one_pair_in"]) == (150, 2)
    assert meta["splits"]["train"]["pairs"] == 300


# A refusal is one sentence that names the file, and leaves no files.


def refused(data, root, error=UsageError):
    with pytest.raises(error) as caught:
        prepare(data, root, quiet)
    message = str(caught.value)
    assert "\n" not in message
    assert message.endswith(".")
    assert not root.exists() or not list(root.iterdir())
    return message


def test_files_without_usable_pairs_are_refused(texts, tmp_path):
    assert "raise max_length" in refused(request(texts, max_length=1), tmp_path / "c")
    prefix, en, de = texts["train"]
    write(prefix, en, [f"{line}\n".encode("latin-1") for line in de])
    broken = [i for i, line in enumerate(de, 1) if not line.isascii()]
    message = refused(request(texts), tmp_path / "c")
    assert f"{len(broken)} of the 300 lines of {prefix}.en and {prefix}.de" in message
    assert f"the first is line {broken[0]})" in message
    write(prefix, [], de)
    assert f"{prefix}.en has 0 lines and {prefix}.de has 300" in refused(
        request(texts), tmp_path / "c"
    )
    write(prefix, [], [])
    assert "there is no text in" in refused(request(texts), tmp_path / "c")
    os.unlink(f"{prefix}.de")
    message = refused(request(texts), tmp_path / "c")
    assert f"{prefix}.de does not exist" in message


@pytest.mark.parametrize("split", ["train", "dev"])
@pytest.mark.parametrize("shorter", ["en", "de"])
def test_sides_of_different_length_are_refused(texts, tmp_path, split, shorter):
    prefix, en, de = texts[split]
    write(prefix, en[: -5 if shorter == "en" else None], de[: -5 if shorter == "de" else None])
    counts = (len(en) - 5, len(de)) if shorter == "en" else (len(en), len(de) - 5)
    message = refused(request(texts), tmp_path / "c")
    assert f"{prefix}.en has {counts[0]} lines and {prefix}.de has {counts[1]}" in message


@pytest.mark.parametrize(
    "encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"]
)
@pytest.mark.parametrize("words", [DE, ["猫", "狗", "房子", "看见"]])
def test_other_unicode_encodings_are_refused_by_name(texts, tmp_path, encoding, words):
    prefix, en, _ = texts["dev"]
    text = "\n".join(sentences(words, len(en), 3)) + "\n"
    Path(f"{prefix}.de").write_bytes(text.encode(encoding))
    message = refused(request(texts), tmp_path / "c")
    assert f"{prefix}.de is not UTF-8 but seems to be UTF-16" in message
    assert "latin" not in message


def test_text_that_a_vocabulary_loses_is_counted_and_said(texts, tmp_path):
    prefix, en, de = texts["dev"]
    write(prefix, en, [f"{de[0]} …", f"ﬁn {de[1]}", "犬 " * 9, *de[3:]])
    prefix, en, de = texts["train"]
    write(prefix, en, [*(f"{line} … ﬁn" for line in de[:9]), *de[9:]])
    lines: list[str] = []
    prepare(request(texts, vocabulary=80), tmp_path / "c", lines.append)
    assert "dev 23 (1 with a reference that no output can equal)" in lines[0]
    tokens = sum(len(line.split()) for line in de)  # at least: a word has one or more
    assert 0 < float(lines[0].split("dev ")[-1].split("%")[0]) < 900 / min(tokens, 70)
    prepare(request(texts, vocabulary=80, normalization="nmt_nfkc"), tmp_path / "c", lines.append)
    assert "dev 23 (3 with a reference that no output can equal)" in lines[1]


def zstandard(data):
    return pyarrow.compress(data, "zstd", asbytes=True)


@pytest.mark.parametrize("suffix", ["", ".gz", ".xz", ".bz2", ".zst"])
@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress, zstandard])
def test_a_compressed_file_is_known_by_its_content(texts, tmp_path, compress, suffix):
    before = prepare(request(texts), tmp_path / "cache", quiet)
    path = Path(f"{texts['dev'][0]}.de")
    data = path.read_bytes()
    path.unlink()
    path.with_name(path.name + suffix).write_bytes(compress(data))
    after = prepare(request(texts), tmp_path / "cache", quiet)
    assert open_dataset(after).fingerprint == open_dataset(before).fingerprint
    path.with_name(path.name + suffix).write_bytes(compress(data)[:-9])
    with pytest.raises(UsageError, match="is not a whole"):
        prepare(request(texts), tmp_path / "cache2", quiet)


@pytest.mark.parametrize("damage", ["cut", "not gzip", "flipped", "garbled"])
def test_a_damaged_gzip_is_refused(texts, tmp_path, damage):
    prefix, en, de = texts["train"]
    write(prefix, en, de, ".gz")
    Path(f"{prefix}.en").unlink()
    path = Path(f"{prefix}.en.gz")
    data = path.read_bytes()
    middle = len(data) // 2
    path.write_bytes(
        {
            "cut": data[:-50],
            "not gzip": b"the dog\n",
            "garbled": data[:30] + b"\xff" * 40 + data[70:],
            "flipped": data[:middle] + bytes([data[middle] ^ 255]) + data[middle + 1 :],
        }[damage]
    )
    reason = "is not compressed" if damage == "not gzip" else "is not a whole gz file"
    assert f"{path} {reason}" in refused(request(texts), tmp_path / "c")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"corpus": "multi30k", "target": "es"}, "no language 'es': choose from en, de, fr"),
        ({"corpus": "wmt14", "target": "cs"}, "English with German or French, not en-cs"),
        ({"corpus": "grammar", "source": "de", "target": "en"}, "en into de, not de into en"),
        ({"corpus": "multi30k", "target": "en"}, "source and target are both 'en'"),
        ({"corpus": "text"}, "corpus text needs train"),
        ({"corpus": "text", "train": "x"}, "corpus text needs dev"),
        ({"corpus": "grammar", "train": "x"}, "grammar reads no train"),
        ({"corpus": "wmt14", "grade": "hard"}, "corpus wmt14 reads no grade"),
        ({"corpus": "wmt14", "directory": "/not/there"}, "there is no directory /not/there"),
        ({"corpus": "multi30k", "directory": "/not/there"}, "/not/there/train.en does not exist"),
    ],
)
def test_options_that_a_corpus_lacks_are_refused(tmp_path, fields, expected):
    assert expected in refused(Data(**fields), tmp_path / "c")


def test_a_directory_that_cannot_be_written_is_refused(texts, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(RunError, match="could not be written"):
        prepare(request(texts), tmp_path / "file", quiet)


def test_an_interrupt_leaves_no_files(texts, tmp_path, monkeypatch):
    def interrupted(*_):
        assert list((tmp_path / "c").iterdir())  # the cache is being written
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        prepare(request(texts), tmp_path / "c", quiet)
    assert not list((tmp_path / "c").iterdir())


def test_the_folders_of_killed_preparations_are_removed(texts, tmp_path):
    names = ".text-en-de-0." + "a" * 32, ".text-en-de-0." + "b" * 32, ".others.folder"
    killed, working, other = (tmp_path / name for name in names)
    for path in (killed, working, other):
        path.mkdir()
        (path / "train.source.tokens").write_bytes(b"1")
    for path in (killed, other):
        os.utime(path, (0, 0))
    directory = prepare(request(texts), tmp_path, quiet)
    assert {*tmp_path.glob("*text-*"), other} == {directory, working, other}
    assert other.exists()


@pytest.mark.full
def test_two_processes_can_prepare_one_corpus_at_once(texts, tmp_path):
    root = tmp_path / "c"
    context = multiprocessing.get_context("spawn")
    both = [context.Process(target=prepare, args=(request(texts), root, quiet)) for _ in "ab"]
    for process in both:
        process.start()
    for process in both:
        process.join()
    assert [process.exitcode for process in both] == [0, 0]
    [directory] = root.iterdir()
    assert tree(directory) == tree(prepare(request(texts), tmp_path / "alone", quiet))


def test_the_slower_of_two_writers_keeps_the_first(texts, tmp_path, monkeypatch):
    move = os.rename

    def late(aside, directory):
        monkeypatch.setattr(os, "rename", move)
        prepare(request(texts), tmp_path / "c", quiet)  # the other process
        move(aside, directory)

    monkeypatch.setattr(os, "rename", late)
    directory = prepare(request(texts), tmp_path / "c", quiet)
    assert list((tmp_path / "c").iterdir()) == [directory]


@pytest.mark.parametrize("name", ["train.source.tokens", "dev.target.offsets", "vocabulary.model"])
def test_a_truncated_file_is_refused(texts, tmp_path, name):
    path = prepare(request(texts), tmp_path, quiet) / name
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(UsageError, match=f"{name} has .* bytes instead of"):
        open_dataset(path.parent)


def test_a_directory_that_is_no_cache_is_refused(tmp_path):
    with pytest.raises(UsageError, match="holds no prepared corpus"):
        open_dataset(tmp_path)
    (tmp_path / "meta.json").write_text('{"format": 0}')
    with pytest.raises(UsageError, match="prepared in format 0"):
        open_dataset(tmp_path)


def test_training_from_a_cache_imports_neither_tfds_nor_array_record_nor_jax(texts, tmp_path):
    code = f"""
import sys
for name in ("tensorflow_datasets", "array_record", "sentencepiece", "tensorflow", "jax", "etils"):
    sys.modules[name] = None  # importing it raises
from pathlib import Path
from t2t_jax.config import Data
from t2t_jax.data.batches import Batches
from t2t_jax.data.cache import open_dataset
from t2t_jax.data.prepare import prepare
train = open_dataset(prepare({request(texts)!r}, Path({str(tmp_path)!r}))).splits["train"]
print(next(Batches(train.source, train.target, 200).stream())[0])
"""
    prepare(request(texts), tmp_path, quiet)
    assert python(code).splitlines()[-1] == "(0, 1)"


# Built-in corpora.


@pytest.mark.full
def test_multi30k_is_read_from_a_local_copy(multi30k, tmp_path):
    data = Data(corpus="multi30k", directory=str(multi30k), vocabulary=8000, max_length=64)
    lines = []
    directory = prepare(data, tmp_path, lines.append)
    assert lines == [
        "multi30k en-de: train 29,000 pairs kept, 0 longer than 64, 0 empty, 0 not UTF-8; "
        "dev 1,014; test 1,000; vocabulary 8,000; "
        "unknown tokens: train 0.00%, dev 0.00%, test 0.00%"
    ]
    dataset = open_dataset(directory)
    with gzip.open(multi30k / "test_2016_flickr.de.gz") as file:
        assert dataset.splits["test"].references == file.read().decode().splitlines()
    assert prepare(dataclasses.replace(data, directory=""), tmp_path, quiet) == directory


def write_captions(directory):
    """Writes files with the names of Multi30k's."""
    for seed, stem in enumerate(("train", "val", "test_2016_flickr")):
        write(directory / stem, sentences(EN, 99, seed), sentences(DE, 99, seed), ".gz")


def test_multi30k_in_lower_case_differs_in_nothing_else(tmp_path):
    write_captions(tmp_path)
    cased, lower = (
        open_dataset(
            prepare(
                Data(corpus=corpus, directory=str(tmp_path), vocabulary=75), tmp_path / "c", quiet
            )
        )
        for corpus in ("multi30k", "multi30k_lower")
    )
    german = cased.splits["test"].references
    assert lower.splits["test"].references == [text.lower() for text in german] != german
    assert lower.splits["test"].sources == cased.splits["test"].sources
    target = lower.splits["train"].target
    decoded = lower.vocabulary.decode(target[i] for i in range(len(target)))
    assert decoded == [text.lower() for text in sentences(DE, 99, 0)]


def test_multi30k_that_is_not_the_published_one_is_reported(tmp_path):
    write_captions(tmp_path)
    lines = []
    data = Data(corpus="multi30k", directory=str(tmp_path), vocabulary=75)
    prepare(data, tmp_path / "c", lines.append)
    assert lines[0].startswith("not the published .gz files of Multi30k")
    assert lines[0].count(str(tmp_path)) == 6
    assert "train 99 pairs kept" in lines[1]


def test_the_published_checksums_are_those_of_the_local_copy(multi30k):
    from t2t_jax.data.parallel import FILES

    for name in ("train.en.gz", "train.de.gz", "val.en.gz", "val.de.gz"):
        data = (multi30k / name).read_bytes()
        assert FILES[name] == hashlib.sha256(data).hexdigest()


@pytest.fixture
def small_grammar(monkeypatch):
    """The grammar corpus with 300 training pairs by default."""
    from t2t_jax.data import grammar

    small = functools.partial(grammar.generate, dev=11, test=13, long=4, deep=3)
    monkeypatch.setattr(grammar, "generate", small)
    monkeypatch.setitem(
        CORPORA, "grammar", dataclasses.replace(CORPORA["grammar"], drawn_above=300)
    )


def opened(tmp_path, **fields):
    data = Data(corpus="grammar", vocabulary=200, **fields)
    return open_corpus(data, tmp_path, quiet)


def texts_of(dataset):
    """The training pairs of a dataset, as text."""
    train = dataset.splits["train"]
    source, target = (dataset.vocabulary.decode(side) for side in (train.source, train.target))
    return list(zip(source, target, strict=True))


def test_the_grammar_corpus_may_be_larger_than_by_default(tmp_path, small_grammar):
    sizes = (250, 0, 340, 390)
    sample, default, large, larger = (opened(tmp_path, pairs=n) for n in sizes)
    assert [len(texts_of(d)) for d in (sample, default, large, larger)] == [250, 300, 340, 390]
    assert {*texts_of(sample)} < {*texts_of(default)}
    assert texts_of(large)[:300] == texts_of(default)
    assert texts_of(larger)[:340] == texts_of(large)
    assert sample.directory == default.directory
    assert len({d.directory for d in (default, large, larger)}) == 3
    for split in ("dev", "test", "test_long", "test_deep"):
        assert larger.splits[split].sources == default.splits[split].sources
    assert larger.meta["vocabulary"]["trained_on_pairs"] == 390
    from t2t_jax.data import grammar

    for name, pairs in grammar.generate(train=300).items():
        sides = [(x.alignment, x.dependency) for x in pairs]
        kept = default.splits[name].extras
        assert [(tuple(map(tuple, x["alignment"])), x["dependency"]) for x in kept] == sides
    assert "pairs" not in default.meta["asked"]
    assert (
        0 < len(texts_of(opened(tmp_path, pairs=340, max_length=30))) < 340
    )  # long ones are left out


def test_grades_are_corpora_of_their_own(tmp_path, small_grammar):
    easy, normal, hard = (opened(tmp_path, grade=g) for g in ("easy", "normal", "hard"))
    assert len({d.fingerprint for d in (easy, normal, hard)}) == 3
    assert {*normal.meta["asked"]} == {*hard.meta["asked"]} - {"grade"}  # as before grades
    open_once = opener(tmp_path, quiet)
    data = Data(corpus="grammar", vocabulary=200, grade="hard")
    assert open_once(data).fingerprint == hard.fingerprint


# Corpora of study files.

OWN = """
from t2t_jax.study import corpus, metric


@metric("ends", signature="v1", of_sums=lambda sums: sums[..., 0], lower_is_better=True)
def ends(hypotheses, references, sources):
    return [(x[-1:] != y[-1:],) for x, y in zip(hypotheses, references, strict=True)]


def minimal_pairs(data, known):
    error = {"type": "swap", "contrastive": data.task_options}
    return [{"source": x, "reference": "b", "errors": [error]} for x in sorted(known)]


@corpus("own", splits="train dev", metrics="ends, accuracy", options=dict(n=3), words="a b c",
        prompts=True, minimal_pairs=minimal_pairs)
def own(split, n):
    for i in range(n):
        yield "a c" if split == "dev" else "a", "_b" + " c" * (i + 1), {"dependency": i}
"""


@pytest.fixture
def own(tmp_path):
    """A corpus that a file declares with all that a corpus of the package has."""
    path, before, known = tmp_path / "own.py", study_file.entries(), dict(METRICS)
    path.write_text(OWN)
    study_file.load(path)
    yield config.replace(config.Config(), corpus="own", vocabulary=7, task_options="n=2")
    study_file.forget(path, before)
    METRICS.clear()
    METRICS.update(known)


def test_annotations_of_some_pairs_alone_are_refused(tmp_path):
    path, before = tmp_path / "partly.py", study_file.entries()
    path.write_text(
        "from t2t_jax.study import corpus\n"
        "@corpus('partly', splits='train dev', metrics='accuracy', words='a b')\n"
        "def partly(split):\n    yield 'a', 'b', {'dependency': 1}\n    yield 'a', 'b'\n"
    )
    study_file.load(path)
    data = config.replace(config.Config(), corpus="partly", vocabulary=6).data
    with pytest.raises(UsageError, match="has annotations of 1 of its 2 pairs"):
        open_corpus(data, tmp_path / "cache", quiet)
    study_file.forget(path, before)


@pytest.mark.parametrize("word", ["<pad>", "</s>", "_a", "a"])
def test_words_that_are_special_or_declared_twice_are_refused(word, own, tmp_path, monkeypatch):
    declared = dataclasses.replace(CORPORA["own"], words=("a", "b", "c", word))
    monkeypatch.setitem(CORPORA, "own", declared)
    with pytest.raises(UsageError, match=f"corpus own has the word {word} twice, or it names"):
        open_corpus(config.replace(own, vocabulary=8).data, tmp_path, quiet)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("yield '_a b', 'b'", "train of odd has a prompt in a source"),
        ("yield {'source': 'a', 'target': 'b'}", "corpus odd yields {'source': 'a', 'targe"),
    ],
)
def test_prompts_in_sources_and_other_items_than_pairs_are_refused(line, words, tmp_path):
    path, before = tmp_path / "odd.py", study_file.entries()
    path.write_text(
        "from t2t_jax.study import corpus\n"
        "@corpus('odd', splits='train dev', metrics='accuracy', words='a b', prompts=True)\n"
        f"def odd(split):\n    {line}\n"
    )
    study_file.load(path)
    with pytest.raises(UsageError, match=words):
        open_corpus(Data(corpus="odd", vocabulary=6), tmp_path / "cache", quiet)
    study_file.forget(path, before)


def test_a_file_declares_a_corpus_with_all_that_the_package_declares(own, tmp_path):
    dataset = open_corpus(own.data, tmp_path / "cache", quiet)
    words = [x.removeprefix("▁") for x in dataset.vocabulary.pieces(range(7))]
    assert {*words[4:]} == {"a", "b", "c"}
    dev = dataset.splits["dev"]
    assert dev.references == ["_b c", "_b c c"]
    assert dev.extras == [{"dependency": 0}, {"dependency": 1}]
    first = dev.target[0].tolist()
    assert first == [-words.index("b"), words.index("c"), -EOS]
    assert len(open_corpus(dataclasses.replace(own.data, task_options=""), tmp_path, quiet)
               .splits["train"].source) == 3  # fmt: skip
    decoder = config.replace(own, architecture="decoder")
    assert as_read(decoder, dataset).splits["dev"].target[0].tolist()[-3:] == first
    assert len(as_read(decoder, dataset).splits["dev"].target[0]) == 3 + len(first)
    assert [metric.name for metric in metrics_of("own")] == ["ends", "accuracy"]
    assert metric_of("own").lower_is_better
    scores, counts = score(outputs_of(dev, ["_b c", "_b c a"], own.data), metrics_of("own"))
    assert {key: x["score"] for key, x in scores.items()} == {"ends": 1, "accuracy": 100 * 2 / 3}
    assert counts == [[False], [True]]
    with pytest.raises(UsageError, match="set vocabulary=7"):
        open_corpus(dataclasses.replace(own.data, vocabulary=8), tmp_path, quiet)


def test_a_run_is_judged_on_the_minimal_pairs_of_its_corpus(own, tmp_path, monkeypatch):
    judged = []
    monkeypatch.setattr(judging.store, "read_config", lambda directory: own)
    monkeypatch.setattr(judging.store, "open_dataset", lambda *_: None)
    monkeypatch.setattr(loading, "load", lambda directory, report: [None] * 4)
    monkeypatch.setattr(
        judging, "judge", lambda *given: judged.extend(given[-1]) or [Judgement("", 0, 1)]
    )
    found, _ = judging.score(tmp_path, tmp_path, quiet)
    error = {"type": "swap", "contrastive": "n=2"}
    assert judged == [{"source": "a", "reference": "b", "errors": [error]}]
    assert (found["score"], found["signature"][:12]) == (100, "pairs:1|set:")


def test_words_are_predicted_in_a_vocabulary_of_words_by_a_causal_model(own, tmp_path, monkeypatch):
    first = dataclasses.replace(CORPORA["own"], metrics=("accuracy",), prompts=False)
    monkeypatch.setitem(CORPORA, "own", first)
    assert metric_of("own").name == "accuracy"
    with pytest.raises(UsageError, match="architecture=encoder predicts masked words, which"):
        config.replace(own, architecture="encoder")
    monkeypatch.setitem(CORPORA, "own", dataclasses.replace(first, words=("a", "b")))
    with pytest.raises(UsageError, match="the word 'c' is not in the vocabulary"):
        open_corpus(config.replace(own, vocabulary=6).data, tmp_path, quiet)
    monkeypatch.setitem(CORPORA, "own", dataclasses.replace(first, words=()))
    with pytest.raises(UsageError, match="accuracy needs whole words: declare corpus own with"):
        metric_of("own")


def test_a_corpus_with_a_metric_that_does_not_exist_is_refused(monkeypatch):
    made = dataclasses.replace(CORPORA["text"], metrics=("blue",))
    monkeypatch.setitem(CORPORA, "text", made)
    with pytest.raises(UsageError, match=r"corpus text names a metric 'blue'"):
        metric_of("text")


def test_a_generated_corpus_keeps_its_bytes():
    """If this fails, raise VERSION in data/diagnostics.py, so that corpora are prepared again."""
    drawn = [
        generate(name, parse_options(name, ""), 44, 100)
        for name, corpus in CORPORA.items()
        if corpus.drawn_above == 0
    ]
    digest = hashlib.sha256(
        repr([{k: [tuple(e) for e in v] for k, v in x.items()} for x in drawn]).encode()
    )
    assert digest.hexdigest() == "94965558ffe630daba910dcac93548c3cc4ed478f79461f72f58ef417d8aaea8"
