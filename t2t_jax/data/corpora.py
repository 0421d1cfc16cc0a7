"""Corpora of sentence pairs: grammar, Multi30k, WMT14, treebanks, and parallel text files.

`prepare.py` tokenises them.
"""

import codecs
import functools
import gzip
import hashlib
import itertools
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from t2t_jax.config import Data
from t2t_jax.data import diagnostics, multi30k, treebank
from t2t_jax.data.cache import SIDES
from t2t_jax.data.registry import CORPORA, Entry, is_task, parse_options
from t2t_jax.data.tokenise import FilesMissing, Raw, Stream
from t2t_jax.errors import UsageError
from t2t_jax.parts import implementation, in_file

Report = Callable[[str], object]


@dataclass(frozen=True)
class Corpus:
    """A corpus before tokenisation.

    Attributes:
      content: JSON that is equal for corpora of equal pairs, such as checksums.
      streams: function that gives the raw pairs of each split; it may download them.
      words: the vocabulary, if it consists of whole words.
      whole_targets: whether every word of a training target is one subword, as the brackets of
        linearised trees are.
    """

    content: Mapping[str, Any]
    streams: Callable[[], Mapping[str, Stream]]
    words: Sequence[str] = ()
    whole_targets: bool = False


def corpus_of(data: Data, root: Path, report: Report) -> Corpus:
    """The corpus of a config, before tokenisation.

    Args:
      root: the cache, where downloaded files are kept.
    """
    entry = CORPORA[data.corpus]
    if in_file(entry.where):
        return _of_file(data.corpus, entry)
    make: Callable[[Data, Path, Report], Corpus] = implementation(entry.where, __name__)
    return make(data, root, report)


def generated_pairs(data: Data) -> int:
    """The number of training pairs if a corpus of this size is generated on request, else 0."""
    if is_task(data.corpus):
        return data.pairs
    return data.pairs if data.corpus == "grammar" and data.pairs > GRAMMAR_PAIRS else 0


# Parallel text files.


def _text(data: Data, root: Path, report: Report) -> Corpus:
    for split in ("train", "dev"):
        if not getattr(data, split):
            raise UsageError(
                f"corpus text needs {split}: give the path of its two files without the language, "
                f"--{split} PREFIX for PREFIX.{data.source} and PREFIX.{data.target}."
            )
    prefixes = {s: getattr(data, s) for s in ("train", "dev", "test") if getattr(data, s)}
    files = {
        split: tuple(_find(prefix, language, split) for language in (data.source, data.target))
        for split, prefix in prefixes.items()
    }
    return _from_files(files)


def _from_files(files: Mapping[str, tuple[Path, ...]]) -> Corpus:
    content = {split: [_sha256(path) for path in paths] for split, paths in files.items()}
    streams = {
        split: Stream(f"{a} and {b}", functools.partial(_pairs, a, b))
        for split, (a, b) in files.items()
    }
    return Corpus(content, lambda: streams)


def _find(prefix: str, language: str, split: str) -> Path:
    plain = Path(f"{prefix}.{language}")
    for path in (plain, Path(f"{prefix}.{language}.gz")):
        if path.is_file():
            return path
    raise FilesMissing(
        f"neither {plain} nor {plain}.gz exists: put the {language} side of {split} there, or "
        "correct the path."
    )


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read ({error.strerror}): check its permissions."
        ) from error


def _pairs(a: Path, b: Path) -> Iterator[Raw]:
    """Line n of the first file with line n of the second."""
    left, right = _lines(a), _lines(b)
    for n, (x, y) in enumerate(itertools.zip_longest(left, right)):
        if x is None or y is None:
            longer = n + 1 + sum(1 for _ in (left if y is None else right))
            lines = (n, longer) if x is None else (longer, n)
            raise UsageError(
                f"{a} has {lines[0]:,} lines and {b} has {lines[1]:,}: line n of one must "
                "translate line n of the other, so give files of equal length."
            )
        yield Raw(x, y)


def _lines(path: Path) -> Iterator[bytes]:
    """The lines of a file; only a newline ends a line, not Unicode's other line breaks."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            if first := file.readline():
                yield first.removeprefix(codecs.BOM_UTF8)
            yield from file
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UsageError(
            f"{path} is not a whole gzip file ({error}): download or compress it again."
        ) from error


# Corpora with a name.


def _multi30k(data: Data, root: Path, report: Report) -> Corpus:
    _check_languages(data, multi30k.LANGUAGES)
    pair = (data.source, data.target)
    published = {
        split: [multi30k.FILES[f"{stem}.{language}.gz"][1] for language in pair]
        for split, stem in multi30k.STEMS.items()
    }
    if not data.directory:
        return Corpus(published, lambda: _builders().multi30k(data.source, data.target, root))
    stems = {split: str(Path(data.directory) / stem) for split, stem in multi30k.STEMS.items()}
    local = _from_files({s: tuple(_find(stem, x, s) for x in pair) for s, stem in stems.items()})
    changed = [
        f"{stems[split]}.{language}"
        for split in stems
        for language, a, b in zip(pair, local.content[split], published[split], strict=True)
        if a != b
    ]
    if changed:
        report(
            "not the published .gz files of Multi30k (their sha256 differs), so scores can be "
            f"compared with published ones only if the text is the same: {', '.join(changed)}"
        )
    return local


def _multi30k_lower(data: Data, root: Path, report: Report) -> Corpus:
    """Multi30k in lower case, as Wu et al. (2021) and others read it.

    Its models expect such text: `translate` does not change the case of what it is given.
    """
    cased = _multi30k(data, root, report)

    def lowercase(text: bytes) -> bytes:
        return text.decode(errors="surrogateescape").lower().encode(errors="surrogateescape")

    def pairs(read: Callable[[], Iterator[Raw]]) -> Iterator[Raw]:
        for raw in read():
            yield Raw(lowercase(raw.source), lowercase(raw.target))

    def streams() -> Mapping[str, Stream]:
        return {
            split: Stream(where, functools.partial(pairs, read))
            for split, (where, read) in cased.streams().items()
        }

    return Corpus({**cased.content, "case": "lower"}, streams)


def _wmt14(data: Data, root: Path, report: Report) -> Corpus:
    pair = {data.source, data.target}
    if pair not in ({"en", "de"}, {"en", "fr"}):
        raise UsageError(
            f"corpus wmt14 is English with German or French, not {data.source}-{data.target}: set "
            "source and target to en and de, or en and fr."
        )
    if data.directory and not Path(data.directory).is_dir():
        raise UsageError(
            f"there is no directory {data.directory}: correct the path or leave it out."
        )
    # TFDS checks the checksums of a version's archives, so the version identifies the content.
    content = {"tfds": f"wmt14_translate/{(pair - {'en'}).pop()}-en:1.0.0"}
    return Corpus(
        content, lambda: _builders().wmt14(data.source, data.target, root, data.directory)
    )


def _treebank(data: Data, root: Path, report: Report) -> Corpus:
    if (data.source, data.target) != ("en", "tree"):
        raise UsageError(
            f"corpus {data.corpus} turns en into tree, not {data.source} into {data.target}: set "
            "source=en and target=tree, or choose another corpus."
        )
    if not Path(data.directory or "?").is_dir():
        raise FilesMissing(
            f"corpus {data.corpus} is read from a directory, and --directory is "
            f"{data.directory or 'not set'}: set it to that of the Penn Treebank's .mrg files."
        )
    files = treebank.splits(Path(data.directory), data.corpus)
    content = {split: [_sha256(path) for path in paths] for split, paths in files.items()}
    modules = (Path(__file__).with_name(name) for name in ("treebank.py", "trees.py"))
    code = {path.name: _sha256(path) for path in modules}
    streams = {
        split: Stream(f"the {split} trees", functools.partial(treebank.pairs, paths))
        for split, paths in files.items()
    }
    return Corpus(content | {"code": code}, lambda: streams, whole_targets=True)


def _grammar(data: Data, root: Path, report: Report) -> Corpus:
    if (data.source, data.target) != ("en", "de"):
        raise UsageError(
            f"corpus grammar translates en to de, not {data.source} to {data.target}: set "
            "source=en and target=de, or choose another corpus."
        )

    @functools.cache
    def pairs() -> Mapping[str, Sequence[Any]]:
        from t2t_jax.data import grammar

        grade, more = grammar.GRADES[data.grade], max(0, generated_pairs(data) - GRAMMAR_PAIRS)
        return grammar.generate(GRAMMAR_SEED, grade, train=GRAMMAR_PAIRS, more=more)

    def stream(split: str) -> Iterator[Raw]:
        for pair in pairs()[split]:
            extra = {name: x for name, x in pair._asdict().items() if name not in SIDES}
            yield Raw(pair.source.encode(), pair.target.encode(), extra)

    def streams() -> Mapping[str, Stream]:
        return {
            split: Stream(f"the grammar's {split} split", functools.partial(stream, split))
            for split in pairs()
        }

    modules = sorted(Path(__file__).with_name("grammar").glob("*.py"))
    code = {path.name: _sha256(path) for path in modules}
    return Corpus({"seed": GRAMMAR_SEED, "code": code}, streams)


GRAMMAR_SEED = 0
GRAMMAR_PAIRS = 60_000  # in training, unless more are asked for
NORMAL = Data().grade


def _task(data: Data, root: Path, report: Report) -> Corpus:
    options = parse_options(data.corpus, data.task_options)
    words = diagnostics.vocabulary(data.corpus, options, data.vocabulary)
    if not words:
        raise UsageError(
            f"vocabulary={data.vocabulary} leaves corpus {data.corpus} without words, as special "
            "tokens take four places: raise vocabulary."
        )

    @functools.cache
    def examples() -> Mapping[str, Sequence[diagnostics.Example]]:
        pairs = generated_pairs(data) or diagnostics.PAIRS
        return diagnostics.generate(data.corpus, options, data.vocabulary, pairs)

    def stream(split: str) -> Iterator[Raw]:
        for source, target, distance in examples()[split]:
            extra = None if distance is None else {"dependency": distance}
            yield Raw(" ".join(source).encode(), " ".join(target).encode(), extra)

    def streams() -> Mapping[str, Stream]:
        return {
            split: Stream(f"{split} of {data.corpus}", functools.partial(stream, split))
            for split in diagnostics.SPLITS
        }

    modules = (
        Path(__file__).with_name(name) for name in ("tasks.py", "nested.py", "diagnostics.py")
    )
    code = {path.name: _sha256(path) for path in modules}
    return Corpus({"options": options, "code": code}, streams, words)


def _check_languages(data: Data, languages: Sequence[str]) -> None:
    for language in (data.source, data.target):
        if language not in languages:
            raise UsageError(
                f"corpus {data.corpus} has no language {language!r}: choose from "
                f"{', '.join(languages)}."
            )


def _builders():
    """The module `builders`; training on a prepared corpus needs no TFDS."""
    from t2t_jax.data import builders

    return builders


# Corpora of study files.


def _pairs_of(name: str, function: Callable[..., Any], split: str) -> Iterator[Sequence[str]]:
    try:
        yield from function(split)
    except OSError as error:
        raise UsageError(f"corpus {name} cannot be read: {error}.") from error


def _of_file(name: str, entry: Entry) -> Corpus:
    function = implementation(entry.where, "")

    def stream(split: str) -> Iterator[Raw]:
        for pair in _pairs_of(name, function, split):
            if [type(text) for text in pair] != [str, str]:
                raise UsageError(f"corpus {name} yields {pair!r} in {split}: yield two texts.")
            if any("\n" in text.strip() for text in pair):
                raise UsageError(
                    f"corpus {name} yields a text of several lines in {split}, {pair!r}: yield one "
                    "line, as translations and references are files of lines."
                )
            source, target = pair
            yield Raw(source.encode(), target.encode())

    streams = {
        split: Stream(f"{split} of {name}", functools.partial(stream, split))
        for split in entry.splits
    }
    content = {"code": entry.version, "files": [_sha256(Path(path)) for path in entry.files]}
    return Corpus(content, lambda: streams)
