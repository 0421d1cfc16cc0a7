"""Corpora of documents: files of plain text, of JSON lines, or in Parquet."""

import glob
import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from t2t_jax.config import Data
from t2t_jax.data.parallel import from_files, lines_of
from t2t_jax.data.raw import FilesMissing, Raw, RawCorpus, Report
from t2t_jax.errors import UsageError


def documents(data: Data, root: Path, report: Report) -> RawCorpus:
    """The documents of the files that the fields train, dev and test name."""
    given = {split: getattr(data, split) for split in ("train", "dev", "test")}
    files = {x: _files(paths, x) for x, paths in given.items() if paths or x != "test"}
    corpus = from_files(files, _read)
    # Equal bytes may be read in different ways.
    readers = {split: [_reader(path).__name__ for path in paths] for split, paths in files.items()}
    return replace(corpus, content={**corpus.content, "readers": readers})


def _files(paths: str, split: str) -> list[Path]:
    """The files that paths or patterns, separated by commas, name."""
    if not paths:
        raise UsageError(
            f"corpus documents needs {split}: give its files, --{split} FILE,FILE or a pattern in "
            "quotes."
        )
    files = []
    for path in map(str.strip, paths.split(",")):
        found = [path] if Path(path).is_file() else sorted(glob.glob(path, recursive=True))
        matching = [Path(x) for x in found if Path(x).is_file()]
        if not matching:
            raise FilesMissing(f"there is no file {path} for {split}: correct the path.")
        files += matching
    return list(dict.fromkeys(files))


def _read(*paths: Path) -> Iterator[Raw]:
    for path in paths:
        for document in _reader(path)(path):
            yield Raw(b"", document, document=True)


def _reader(path: Path) -> Callable[[Path], Iterator[bytes]]:
    """The function that reads a file, by the last of its suffixes that names a format."""
    readers = [_READERS[x] for x in map(str.lower, path.suffixes) if x in _READERS]
    return readers[-1] if readers else _plain_text


def _plain_text(path: Path) -> Iterator[bytes]:
    """The documents of a file in which empty lines separate them."""
    for is_text, lines in itertools.groupby(lines_of(path), lambda line: bool(line.strip())):
        if is_text:
            yield b"".join(lines)


def _json_lines(path: Path) -> Iterator[bytes]:
    """The field "text" of each line of a file."""
    for number, line in enumerate(lines_of(path), 1):
        if line.strip():
            try:
                text = json.loads(line)["text"]
            except (ValueError, KeyError, TypeError):
                text = None
            if not isinstance(text, str):
                raise UsageError(
                    f'{path}, line {number}, is no JSON object with a "text": correct it, or '
                    "rename a file of plain text to end in .txt."
                )
            yield text.encode(errors="surrogatepass")


def _parquet(path: Path) -> Iterator[bytes]:
    """The column "text" of a file."""
    import pyarrow.parquet  # slow to import

    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(columns=["text"]):
                for text in batch["text"].to_pylist():
                    yield (text or "").encode()
    except (KeyError, AttributeError, pyarrow.ArrowException) as error:
        raise UsageError(
            f'{path} cannot be read as Parquet with a column "text" of strings ({error}): '
            "correct it."
        ) from error


_READERS = {
    **dict.fromkeys((".jsonl", ".json", ".ndjson"), _json_lines),
    ".parquet": _parquet,
    ".txt": _plain_text,
}
