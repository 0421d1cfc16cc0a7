"""`translate`, `generate`, `evaluate`, `export` and `attend`: what a trained run is used for."""

import io
import itertools
import os
import select
import sys
from argparse import Namespace
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from t2t_jax import config, files
from t2t_jax.commands.shared import cache_programs, changed_fields, print_scores
from t2t_jax.config import Config
from t2t_jax.data import parallel
from t2t_jax.data.corpora import CORPORA
from t2t_jax.errors import UsageError
from t2t_jax.evaluation.contrastive import Accuracy, accuracies
from t2t_jax.evaluation.metrics import CONTRASTIVE, metric_of, metrics_of, outputs_of, parse, score
from t2t_jax.evaluation.teacher_forced import nats_of
from t2t_jax.inference import sample
from t2t_jax.inference import translate as translation
from t2t_jax.inference.export import export as export_model
from t2t_jax.parts import ARCHITECTURES
from t2t_jax.report import attention
from t2t_jax.runs import judging, loading, store
from t2t_jax.runs.names import resolve, title
from t2t_jax.study.distances import diagnostic_table
from t2t_jax.study.typeset import as_text
from t2t_jax.terminal import align, say
from t2t_jax.tokens import BOS, EOS

_PAUSE = 0.2  # seconds to wait for further lines before those that have arrived are translated


def translate(arguments: Namespace) -> None:
    """Translates the lines of standard input, in batches of those that have arrived."""
    cache_programs(arguments.cache)
    c, model, params, vocabulary = loading.load(resolve(arguments.run, arguments.store), say)
    c = config.replace(c, **changed_fields(arguments))
    first = 1
    for lines in _arriving_lines("standard input", sys.stdin.buffer):
        translations = _translate(c, model, params, vocabulary, lines, first)
        sys.stdout.buffer.write("".join(f"{line}\n" for line in translations).encode())
        sys.stdout.buffer.flush()
        first += len(lines)


def generate(arguments: Namespace) -> None:
    """Continues the lines of standard input, and prints tokens as they are drawn."""
    cache_programs(arguments.cache)
    directory = resolve(arguments.run, arguments.store)
    c, model, params, vocabulary = loading.load(directory, say, translating=False)
    if ARCHITECTURES[c.model.architecture].masked or model.translates:
        raise UsageError(f"{title(directory)} holds no causal language model: name another run.")
    # A document begins after an end mark; attention within documents sees nothing before it.
    first = [] if c.model.document_attention == "within" else [BOS]
    begin = [*first, EOS] if CORPORA[c.data.corpus].documents else [BOS]
    end = [EOS] * CORPORA[c.data.corpus].prompts  # the end of a source that is read as a prompt
    choice = sample.Choice(arguments.temperature, arguments.top_k, arguments.top_p)
    for line in itertools.chain.from_iterable(_arriving_lines("standard input", sys.stdin.buffer)):
        ids = vocabulary.encode([line.strip()])[0]
        if len(begin + ids + end) + arguments.tokens > (limit := sample.positions(model)):
            raise UsageError(
                f"the model has {limit:,} positions and the line {len(ids):,} tokens: "
                "shorten it, or lower --tokens."
            )
        limits = arguments.tokens, arguments.seed, choice
        drawn, printed = sample.generate(model, params, begin + ids + end, *limits), ""
        for tokens in itertools.chain([[]], drawn):
            ids += tokens
            text = vocabulary.decode([ids])[0].rstrip("\ufffd")  # half a character
            print(text.removeprefix(printed), end="", flush=True)
            printed = text
        print(flush=True)


def evaluate(arguments: Namespace) -> None:
    """Scores a run on splits of its corpus, on files, or on the minimal pairs of its corpus."""
    paths = arguments.sources, arguments.references
    if (paths[0] is None) != (paths[1] is None):
        raise UsageError("--sources and --references go together: give both, or a --split.")
    contrastive = CONTRASTIVE in map(str.strip, arguments.metrics.split(","))
    if contrastive and paths[0]:
        raise UsageError(
            f"{CONTRASTIVE} has pairs of its own: leave out --sources and --references, or the "
            "metric."
        )
    if paths[0] and arguments.split != "test":
        raise UsageError("--split names a split of the corpus: leave it out, or the files.")
    texts = None if paths[0] is None else _read_texts(paths)
    cache_programs(arguments.cache)
    directory, changes = resolve(arguments.run, arguments.store), changed_fields(arguments)
    splits = [name.strip() for name in arguments.split.split(",")]
    corpus = store.read_config(directory).data.corpus
    if metric_of(corpus).teacher_forced:
        if texts or changes or arguments.metrics:
            raise UsageError(
                f"{title(directory)} is scored on words that are predicted and not decoded: give "
                "--split alone, without files and the options of decoding."
            )
        _print_predictions(arguments, directory, splits)
        return
    parse(arguments.metrics, corpus)  # before the long work
    judged = judging.score(directory, arguments.cache, say) if contrastive else None
    for split in splits if texts is None else splits[:1]:
        where = arguments.cache, split, texts
        scores = loading.evaluate(directory, *where, changes, arguments.metrics, say)
        print_scores(str(paths[0] or split), scores)
    if judged:
        print_scores("minimal pairs", {CONTRASTIVE: judged[0]})
        print(_by_type(accuracies(judged[1])))


def _print_predictions(arguments: Namespace, directory: Path, splits: Sequence[str]) -> None:
    """Prints how well a run predicts words: by length and distance, or documents by position."""
    predicted = loading.predictions(directory, arguments.cache, splits, say)
    data = store.read_config(directory).data
    if not CORPORA[data.corpus].documents:
        print(as_text(diagnostic_table(f"{title(directory)}.", predicted)), end="")
        return
    for name, (lines, split) in predicted.items():
        print_scores(name, score(outputs_of(split, lines, data), metrics_of(data.corpus))[0])
        nats = nats_of(" ".join(lines))
        positions = np.arange(len(nats)) % data.max_length + 1
        for high in 1 << np.arange((data.max_length - 1).bit_length() + 1):
            part = nats[(high // 2 < positions) & (positions <= high)]
            last = min(high, data.max_length)
            if len(part):
                print(f"  {part.mean():6.2f}  NLL at positions {high // 2 + 1} to {last}")


def _by_type(of_types: Sequence[Accuracy]) -> str:
    """Returns accuracies by type of error and by distance as lines of text."""
    rows = [("", "distance", "accuracy", "95% interval", "n")]
    for x in of_types:
        name, interval = "" if x.distance else x.type, f"{x.low:.1f} to {x.high:.1f}"
        rows.append((name, x.distance, f"{x.share:.1f}%", interval, f"{x.n:,}"))
    return "\n".join(align(rows))


def export(arguments: Namespace) -> None:
    """Exports the model of a run, and prints the directory."""
    directory = resolve(arguments.run, arguments.store)
    c, _, params, vocabulary = loading.load(directory, translating=False)
    out = arguments.out or directory / arguments.format
    files = [path for name in store.INPUTS if (path := directory / name).exists()]
    scores = (store.read_result(directory) or {}).get("scores", {})
    export_model(c, params, vocabulary, out, arguments.format, files, scores)
    print(out)


def attend(arguments: Namespace) -> None:
    """Draws the attention of a model in a sentence and its translation."""
    cache_programs(arguments.cache)
    directory = resolve(arguments.run, arguments.store)
    c, model, params, vocabulary = loading.load(directory, say)
    c = config.replace(c, **changed_fields(arguments))
    if not (sentence := arguments.sentence.strip()):
        raise UsageError("the sentence is empty: give one.")
    if c.model.architecture == "recurrent" and c.model.attention_feeding == "none":
        raise UsageError(
            f"{title(directory)} has no attention (attention_feeding=none): name another run."
        )
    (translated,) = _translate(c, model, params, vocabulary, [sentence])
    source, target = vocabulary.encode([sentence, translated])
    length = max(len(source), len(target)) + 1
    if model.limit and length > model.limit:
        raise UsageError(
            f"the sentence or its translation has {length} subwords, but the model {model.limit} "
            "positions: shorten it."
        )
    attended = attention.attended(model, params, vocabulary, source, target)
    out = arguments.out
    files.make_directory(out)
    attention.picture(attended, out / "attention")
    print(translated, out / "attention.png", sep="\n")


def _translate(
    c: Config, model: Any, params: Any, vocabulary: Any, lines: Sequence[str], first: int = 1
) -> list[str]:
    of_model = model, params, lines, vocabulary, c.decoding
    return translation.translate(*of_model, max_length=c.data.max_length, first=first, warn=say)


def _read_texts(paths: Sequence[Path]) -> list[list[str]]:
    """Returns the lines of files, without the space around them, as corpora have them."""
    texts = []
    for path in paths:  # which may be compressed, as the corpus `text` reads them
        try:
            lines = _decoded(str(path), parallel.lines_of(path), 1)
        except OSError as error:
            raise UsageError(f"cannot read {path}: {error.strerror}.") from None
        texts.append([line.strip() for line in lines])
    for path, lines in zip(paths, texts, strict=True):
        if len(lines) != len(texts[0]):
            raise UsageError(
                f"{paths[0]} has {len(texts[0])} lines and {path} has {len(lines)}: they must "
                "match line by line."
            )
    return texts


def _arriving_lines(name: str, file: BinaryIO) -> Iterator[list[str]]:
    """Yields the lines of a stream in batches, each of the lines that have arrived until then."""
    content, number, ended = bytearray(), 1, False
    while not ended:
        while b"\n" not in content or select.select([file], [], [], _PAUSE)[0]:
            read = os.read(file.fileno(), 1 << 20)
            content += read
            if ended := not read:
                break
        if number == 1:
            parallel.refuse_utf16(name, bytes(content[: 1 << 16]))
            content = content.removeprefix(b"\xef\xbb\xbf")
        whole = len(content) if ended else content.rindex(b"\n") + 1
        if lines := _decoded(name, io.BytesIO(content[:whole]), number):
            yield lines
        number, content = number + len(lines), content[whole:]


def _decoded(name: str, lines: Iterable[bytes], first: int) -> list[str]:
    """Returns lines as text; only the newline separates lines."""
    out = []
    for number, line in enumerate(lines, first):
        try:
            out.append(line.removesuffix(b"\n").decode())
        except UnicodeDecodeError:
            raise UsageError(f"{name}, line {number}, is not UTF-8: convert it.") from None
    return out
