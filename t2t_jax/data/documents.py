"""Corpora of documents: files of plain text, or of JSON lines."""

import glob
import itertools
import json
from collections.abc import Iterator
from pathlib import Path

from t2t_jax.config import Data
from t2t_jax.data.parallel import from_files, lines_of
from t2t_jax.data.raw import FilesMissing, Raw, RawCorpus, Report
from t2t_jax.errors import UsageError


def documents(data: Data, root: Path, report: Report) -> RawCorpus:
    """The documents of the files that the fields train, dev and test name."""
    given = {split: getattr(data, split) for split in ("train", "dev", "test")}
    files = {x: _files(paths, x) for x, paths in given.items() if paths or x != "test"}
    return from_files(files, _read)


def _files(paths: str, split: str) -> list[Path]:
    """The files that paths or patterns, separated by commas, name."""
    if not paths:
        raise UsageError(
            f"corpus documents needs {split}: give its files, --{split} FILE,FILE or a pattern in "
            "quotes."
        )
    files = []
    for path in map(str.strip, paths.split(",")):
        matching = [Path(x) for x in sorted(glob.glob(path)) if Path(x).is_file()]
        if not matching:
            raise FilesMissing(f"there is no file {path} for {split}: correct the path.")
        files += matching
    return files


def _read(*paths: Path) -> Iterator[Raw]:
    for path in paths:
        suffixes = {".jsonl", ".json", ".ndjson"} & {*path.suffixes}
        for document in (_json_lines if suffixes else _plain_text)(path):
            yield Raw(b"", document, document=True)


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
