"""The prepared corpus of a config: tokenised once, and then opened from the cache of `cache.py`.

The cache is keyed by the content of the corpus and by the settings that change it. It can be copied
to another machine, where the same config finds it without the corpus and without TFDS.
"""

import functools
import hashlib
import importlib.metadata
import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from t2t_jax import files, tokens
from t2t_jax.config import PATHS, Data
from t2t_jax.data import cache, tokenise, vocabulary
from t2t_jax.data.cache import FORMAT, Dataset, Split, open_dataset, ragged, summary
from t2t_jax.data.corpora import CORPORA
from t2t_jax.data.raw import REQUEST, FilesMissing, Report, drawn_pairs, raw_corpus, request
from t2t_jax.errors import UsageError

# The fields that change an opened corpus.
_OPENED = (*REQUEST, "normalization", "grade", "task_options", "pairs")


def opener(root: Path, report: Report = print) -> Callable[[Data], Dataset]:
    """A function that opens the prepared corpus of a config, as `open_corpus`, each only once."""
    open_once = functools.cache(functools.partial(open_corpus, root=root, report=report))
    return lambda data: open_once(Data(**{name: getattr(data, name) for name in _OPENED}))


def open_corpus(data: Data, root: Path, report: Report = print) -> Dataset:
    """Opens the prepared corpus of a config, and prepares it first if necessary.

    If the config sets a number of training pairs, they are a random sample without replacement.
    Samples of different sizes are nested; they share dev, test and the vocabulary of the corpus.
    More pairs than the grammar has by default are a corpus of their own: it begins with the default
    training pairs and has the same dev and test, but its vocabulary is trained on all of its pairs.
    A diagnostic task draws as many pairs as are requested: more begin with the same ones, and dev
    and test stay the same.
    """
    dataset = open_dataset(prepare(data, root, report))
    train = dataset.splits["train"]
    if data.pairs == 0 or drawn_pairs(data):
        return dataset
    if data.pairs > len(train.source):
        raise UsageError(
            f"pairs={data.pairs:,} exceeds the {len(train.source):,} training pairs of corpus "
            f"{data.corpus}: lower it, or set 0 for all."
        )
    order = np.random.default_rng(0).permutation(len(train.source))
    rows = np.sort(order[: data.pairs])
    source, target = (ragged([side[i] for i in rows]) for side in (train.source, train.target))
    sample = Split(source, target, train.stem)
    selected = hashlib.sha256(f"{dataset.fingerprint} {rows.tolist()}".encode()).hexdigest()
    return replace(dataset, splits={**dataset.splits, "train": sample}, fingerprint=selected)


def prepare(data: Data, root: Path, report: Report = print) -> Path:
    """The directory below `root` of the tokenised corpus of a config, which is built if missing.

    Reports the numbers of pairs that were kept and left out, in one line. Raises UsageError if
    files are missing, damaged, of different lengths or not UTF-8, or the corpus does not have these
    languages.
    """
    _check_fields(data)
    requested = request(data)
    try:
        corpus = raw_corpus(data, root, report)
    except FilesMissing as error:
        directory = _prepared_earlier(root, requested)
        if directory is None:
            raise
        report(f"{error} Continuing with what was prepared from it earlier: {directory}")
    else:
        # What turns text into ids and writes them: the code, and the version of SentencePiece.
        sources = map(inspect.getsource, (cache, tokenise, tokens, vocabulary))
        code = [hashlib.sha256(source.encode()).hexdigest() for source in sources]
        code.append(importlib.metadata.version("sentencepiece"))
        fields = requested | dict.fromkeys(PATHS, "")  # of whose files there is the content
        keyed = [FORMAT, code, fields, corpus.content]
        key = hashlib.sha256(json.dumps(keyed, sort_keys=True).encode()).hexdigest()
        directory = root / f"{data.corpus}-{data.source}-{data.target}-{key[:16]}"
        if not (directory / "meta.json").exists():
            about = {name: requested[name] for name in ("corpus", "source", "target")}
            about |= {"asked": requested, "content": corpus.content}
            tokenise.build(directory, about, corpus, data)
    meta = open_dataset(directory).meta
    report(summary(meta, data.pairs))
    return directory


def _check_fields(data: Data) -> None:
    if data.source == data.target:
        raise UsageError(f"source and target are both {data.source!r}: choose two languages.")
    languages = CORPORA[data.corpus].languages
    if languages and (data.source, data.target) != languages:
        source, target = languages
        raise UsageError(
            f"corpus {data.corpus} turns {source} into {target}, not {data.source} into "
            f"{data.target}: set source={source} and target={target}, or choose another corpus."
        )
    for name in ("directory", "train", "dev", "test", "grade"):
        if getattr(data, name) != getattr(Data, name) and name not in CORPORA[data.corpus].fields:
            raise UsageError(
                f"corpus {data.corpus} reads no {name}: leave it out, or choose the corpus that "
                f"does ({', '.join(c for c, entry in CORPORA.items() if name in entry.fields)})."
            )


def _prepared_earlier(root: Path, requested: Mapping[str, Any]) -> Path | None:
    """The corpus below `root` that was prepared, perhaps elsewhere, for the same fields.

    A path that is given must be the same absolute path. If no corpus has the same paths, it may
    have more of them, such as a test set. It is None if there are several of different content:
    nothing says which files are meant.
    """
    found, free = {}, {name: "" for name in PATHS if not requested[name]}
    for path in sorted(root.glob("*/meta.json")):
        try:
            meta = files.read_json(path)
        except UsageError:  # another corpus is damaged
            continue
        if meta.get("format") == FORMAT and {**meta["asked"], **free} == requested:
            found[meta["asked"] != requested, meta["fingerprint"]] = path.parent
    nearest = [path for key, path in found.items() if key[0] == min(found)[0]]
    return nearest[0] if len(nearest) == 1 else None
