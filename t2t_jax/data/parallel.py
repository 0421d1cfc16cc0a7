"""Corpora of parallel text: files of lines, Multi30k (Elliott et al. 2016) and WMT14."""

import bz2
import codecs
import functools
import gzip
import hashlib
import http.client
import io
import itertools
import lzma
import urllib.request
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from t2t_jax.config import Data
from t2t_jax.data.raw import FilesMissing, Raw, RawCorpus, Read, Report, Stream, sha256
from t2t_jax.errors import UsageError
from t2t_jax.files import make_directory, write

# The published files of Multi30k, at a fixed commit, as files may move in its repository.
URL = (
    "https://raw.githubusercontent.com/multi30k/dataset/"
    "2cc0f2d7c615b60e07e2d51bb5edc004444d7e0e/data/task1/raw/"
)
LANGUAGES = ("en", "de", "fr")
STEMS = {"train": "train", "dev": "val", "test": "test_2016_flickr"}
_LISTED = """
train.en.gz d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f
train.de.gz 726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6
train.fr.gz 622e75069e9f4c577425c4f277116ce66e63a2401c0a2312d90073cb12379a3c
val.en.gz 14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28
val.de.gz f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a
val.fr.gz ca3106f1a72390591d25f6c45cb4cd39dec4cd3f123e099748a3ce5256c160e9
test_2016_flickr.en.gz 611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9
test_2016_flickr.de.gz 9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8
test_2016_flickr.fr.gz 6d326e188d259fb1d04ac19eae3af956559b3a0b93d7635e56c90987c40c8b90
"""
FILES = dict(map(str.split, _LISTED.split("\n")[1:-1]))  # the sha256 of each


def text(data: Data, root: Path, report: Report) -> RawCorpus:
    given = {split: getattr(data, split) for split in ("train", "dev", "test")}
    for split in ("train", "dev"):
        if not given[split]:
            raise UsageError(
                f"corpus text needs {split}: give the path of its two files without the language, "
                f"--{split} PREFIX for PREFIX.{data.source} and PREFIX.{data.target}."
            )
    pair = data.source, data.target
    files = {x: [_find(prefix, y, x) for y in pair] for x, prefix in given.items() if prefix}
    return from_files(files, _pairs)


def from_files(files: Mapping[str, Sequence[Path]], read: Read) -> RawCorpus:
    """The corpus of files, each split of which a function of its paths reads."""
    content = {split: [sha256(path) for path in paths] for split, paths in files.items()}
    streams = {
        split: Stream(" and ".join(map(str, paths)), functools.partial(read, *paths))
        for split, paths in files.items()
    }
    return RawCorpus(content, lambda: streams)


def _find(prefix: str, language: str, split: str) -> Path:
    plain = f"{prefix}.{language}"
    for suffix in ("", *(f".{name}" for name, _ in _COMPRESSED.values())):
        if (path := Path(plain + suffix)).is_file():
            return path
    raise FilesMissing(
        f"{plain} does not exist, nor does a compressed one (.gz, .xz, .bz2, .zst): put the "
        f"{language} side of {split} there, or correct the path."
    )


def _zstandard(path: Path, mode: str) -> Any:
    import pyarrow  # slow to import

    return io.BufferedReader(pyarrow.input_stream(path, compression="zstd"))


# First bytes of a compressed file -> its suffix, and the function that opens it.
_COMPRESSED: dict[bytes, tuple[str, Callable[..., Any]]] = {
    b"\x1f\x8b": ("gz", gzip.open),
    b"\xfd7zXZ\0": ("xz", lzma.open),
    b"BZh": ("bz2", bz2.open),
    b"\x28\xb5\x2f\xfd": ("zst", _zstandard),
}


def _pairs(a: Path, b: Path) -> Iterator[Raw]:
    """Line n of the first file with line n of the second."""
    for x, y in itertools.zip_longest(lines_of(a), lines_of(b)):
        if x is None or y is None:
            of_a, of_b = (sum(1 for _ in lines_of(path)) for path in (a, b))
            raise UsageError(
                f"{a} has {of_a:,} lines and {b} has {of_b:,}: line n of one must translate line n "
                "of the other, so give files of equal length."
            )
        yield Raw(x, y)


def lines_of(path: Path) -> Iterator[bytes]:
    """The lines of a file; only a newline ends a line, not Unicode's other line breaks.

    A compressed file is known by its first bytes, whatever its name.
    """
    with path.open("rb") as file:
        start = file.read(6)
    named = {f".{name}" for name, _ in _COMPRESSED.values()}
    magic = next((x for x in _COMPRESSED if start.startswith(x)), b"")
    if not magic and path.suffix in named:
        raise UsageError(f"{path} is not compressed as its name says: correct its name.")
    name, opened = _COMPRESSED[magic] if magic else ("", open)
    try:
        with opened(path, "rb") as file:
            refuse_utf16(path, file.peek(1 << 16))
            if first := file.readline():
                yield first.removeprefix(codecs.BOM_UTF8)
            yield from file
    except (EOFError, OSError, zlib.error, lzma.LZMAError) as error:
        if not magic or getattr(error, "errno", None):
            raise
        raise UsageError(
            f"{path} is not a whole {name} file ({error}): download or compress it again."
        ) from error


def refuse_utf16(path: Path | str, start: bytes) -> None:
    """Raises UsageError if a file begins as UTF-16 or UTF-32: every line then has a zero byte."""
    if 2 * start.count(0) > start.count(b"\n") + 1:
        raise UsageError(
            f"{path} is not UTF-8 but seems to be UTF-16, as it has zero bytes in most lines: "
            "convert it with iconv -f utf-16 -t utf-8 (utf-16le or utf-16be if it has no mark)."
        )


def multi30k(data: Data, root: Path, report: Report) -> RawCorpus:
    pair = (data.source, data.target)
    if unknown := [x for x in pair if x not in LANGUAGES]:
        raise UsageError(
            f"corpus {data.corpus} has no language {unknown[0]!r}: choose from "
            f"{', '.join(LANGUAGES)}."
        )
    published = {x: [FILES[f"{stem}.{y}.gz"] for y in pair] for x, stem in STEMS.items()}

    def local(directory: Path) -> RawCorpus:
        files = {x: [_find(f"{directory / stem}", y, x) for y in pair] for x, stem in STEMS.items()}
        return from_files(files, _pairs)

    if not data.directory:
        names = [f"{stem}.{x}.gz" for stem in STEMS.values() for x in pair]
        return RawCorpus(published, lambda: local(_downloaded(names, root / "downloads")).streams())
    corpus = local(Path(data.directory))
    changed = [
        f"{Path(data.directory) / stem}.{language}"
        for split, stem in STEMS.items()
        for language, a, b in zip(pair, corpus.content[split], published[split], strict=True)
        if a != b
    ]
    if changed:
        report(
            "not the published .gz files of Multi30k (their sha256 differs), so scores can be "
            f"compared with published ones only if the text is the same: {', '.join(changed)}"
        )
    return corpus


def _downloaded(names: Iterable[str], directory: Path) -> Path:
    """The directory of published files of Multi30k, after the download of those that it lacks."""
    for name in names:
        if (directory / name).exists():
            continue
        try:
            with urllib.request.urlopen(URL + name, timeout=60) as response:
                content = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise FilesMissing(
                f"Multi30k cannot be downloaded from here ({error}): put these files into a "
                f"directory and give it with --directory: {', '.join(names)} from {URL}."
            ) from error
        if hashlib.sha256(content).hexdigest() != FILES[name]:
            raise UsageError(f"{URL}{name} is not the published file (its sha256 differs).")
        make_directory(directory)
        write(directory / name, content)
    return directory


def multi30k_lower(data: Data, root: Path, report: Report) -> RawCorpus:
    """Multi30k in lower case, as Wu et al. (2021) and others read it.

    Its models expect such text: `translate` does not change the case of what it is given.
    """
    cased = multi30k(data, root, report)

    def lowercase(text: bytes) -> bytes:
        return text.decode(errors="surrogateescape").lower().encode(errors="surrogateescape")

    def read(stream: Stream) -> Iterator[Raw]:
        return (Raw(lowercase(raw.source), lowercase(raw.target)) for raw in stream.read())

    def streams() -> Mapping[str, Stream]:
        every = cased.streams().items()
        return {split: x._replace(read=functools.partial(read, x)) for split, x in every}

    return RawCorpus({**cased.content, "case": "lower"}, streams)


def wmt14(data: Data, root: Path, report: Report) -> RawCorpus:
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

    def streams() -> Mapping[str, Stream]:
        from t2t_jax.data import builders  # training on a prepared corpus needs no TFDS

        return builders.wmt14(data.source, data.target, root, data.directory)

    return RawCorpus(content, streams)
