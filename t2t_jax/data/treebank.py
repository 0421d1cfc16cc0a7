"""The Wall Street Journal of the Penn Treebank as a corpus of sentences and linearised trees.

`wsj` is the standard split: sections 02 to 21 for training, 22 and 23 for dev and test.
`wsj_sample` is for the free sample of sections 00 and 01, with a split of its own; its scores
cannot be compared with those on section 23. Every bracket of a tree is one subword, so that an
output is no longer than its tree.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from t2t_jax.config import Data
from t2t_jax.data import trees
from t2t_jax.data.raw import FilesMissing, Raw, RawCorpus, Report, sha256, streams_of
from t2t_jax.errors import UsageError

VERSION = 1  # to be raised with a change of the pairs that are made of the same files
_NAME = re.compile(r"wsj_(\d\d)(\d\d)\.mrg")
_SECTIONS = {"train": range(2, 22), "dev": range(22, 23), "test": range(23, 24)}


def treebank(data: Data, root: Path, report: Report) -> RawCorpus:
    """The corpus wsj or wsj_sample, from the .mrg files of a directory."""
    if not Path(data.directory or "?").is_dir():
        raise FilesMissing(
            f"corpus {data.corpus} is read from a directory, and --directory is "
            f"{data.directory or 'not set'}: set it to the Penn Treebank's folder of .mrg files."
        )
    files = splits(Path(data.directory), data.corpus)
    content = {split: [sha256(path) for path in paths] for split, paths in files.items()}
    streams = streams_of(data.corpus, files, lambda split: pairs(files[split]))
    return RawCorpus(content | {"version": VERSION}, lambda: streams, whole_targets=True)


def splits(directory: Path, corpus: str) -> Mapping[str, list[Path]]:
    """The files wsj_SSNN.mrg anywhere below a directory, by split.

    The dev and test splits of the sample are the files whose numbers end in 8 and 9.
    Raises FilesMissing if sections of the corpus are missing.
    """
    sections: dict[int, list[Path]] = {}
    for path in sorted(directory.rglob("*.mrg"), key=lambda p: p.name):
        if match := _NAME.fullmatch(path.name):
            sections.setdefault(int(match[1]), []).append(path)
    names = [path.name for paths in sections.values() for path in paths]
    if twice := next((x for x in names if names.count(x) > 1), ""):
        raise UsageError(f"{directory} has {twice} more than once: give the folder of one copy.")
    needed = set(range(2, 24)) if corpus == "wsj" else {0, 1}
    if missing := needed - sections.keys():
        has, lacks = (", ".join(f"{s:02}" for s in sorted(x)) for x in (sections, missing))
        raise FilesMissing(
            f"corpus {corpus} needs sections {min(needed):02} to {max(needed):02} of the Wall "
            f"Street Journal, and below {directory} section {lacks} is missing (it has: "
            f"{has or 'no file wsj_SSNN.mrg'}): give the directory of the .mrg files with "
            "--directory."
        )
    if corpus == "wsj":
        return {
            split: [path for s in numbers for path in sections[s]]
            for split, numbers in _SECTIONS.items()
        }
    files = [*sections[0], *sections[1]]
    ends = {"train": "01234567", "dev": "8", "test": "9"}
    return {split: [p for p in files if p.stem[-1] in digits] for split, digits in ends.items()}


def pairs(files: Sequence[Path]) -> Iterator[Raw]:
    """The examples of files. A sentence that consists of traces is left out."""
    for path in files:
        for raw in trees.read(path):
            tree = trees.strip(raw)
            if tree is None:
                continue
            if tree.is_word:
                raise UsageError(f"{path} has a tree that is a single word: restore the file.")
            yield example(tree)


def example(tree: trees.Tree) -> Raw:
    """The words and the linearised string of a stripped tree, with the tree as an extra."""
    words = " ".join(word for _, word in trees.leaves(tree))
    brackets = " ".join(trees.linearise(tree))
    return Raw(words.encode(), brackets.encode(), {"tree": trees.write(tree)})
