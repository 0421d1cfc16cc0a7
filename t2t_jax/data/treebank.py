"""The Wall Street Journal of the Penn Treebank as a corpus: sentences, and their trees as strings.

`wsj` is the field's split, sections 02 to 21, 22 and 23. `wsj_sample` is for the sample that is
free, of sections 00 and 01, with a split of its own: what is measured on it is never to be put
beside a figure of section 23.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from t2t_jax.data import trees
from t2t_jax.data.tokenise import FilesMissing, Raw
from t2t_jax.errors import UsageError

TREEBANKS = ("wsj", "wsj_sample")
_NAME = re.compile(r"wsj_(\d\d)(\d\d)\.mrg")
_SECTIONS = {"train": range(2, 22), "dev": range(22, 23), "test": range(23, 24)}


def splits(directory: Path, corpus: str) -> Mapping[str, list[Path]]:
    """The files wsj_SSNN.mrg anywhere below a directory, by split.

    The sample's dev and test are every tenth file, those whose number ends in 8 and in 9.

    Raises:
      FilesMissing: the directory lacks sections that the corpus has.
    """
    found: dict[int, list[Path]] = {}
    for path in sorted(directory.rglob("*.mrg"), key=lambda p: p.name):
        if match := _NAME.fullmatch(path.name):
            found.setdefault(int(match[1]), []).append(path)
    wanted = set(range(2, 24)) if corpus == "wsj" else {0, 1}
    if missing := wanted - found.keys():
        has = ", ".join(f"{s:02}" for s in sorted(found)) or "no file wsj_SSNN.mrg"
        raise FilesMissing(
            f"corpus {corpus} needs sections {_span(wanted)} of the Wall Street Journal, and below "
            f"{directory} section {_span(missing)} is missing (there: {has}): give the directory "
            "of the .mrg files with --directory."
        )
    if corpus == "wsj":
        return {
            split: [path for s in sections for path in found[s]]
            for split, sections in _SECTIONS.items()
        }
    files = [*found[0], *found[1]]
    return {
        "train": [p for p in files if p.stem[-1] not in "89"],
        "dev": [p for p in files if p.stem[-1] == "8"],
        "test": [p for p in files if p.stem[-1] == "9"],
    }


def pairs(files: Sequence[Path]) -> Iterator[Raw]:
    """Words and linearised tree of every sentence, and the gold tree; nothing but traces: none.

    Raises:
      UsageError: a file is damaged.
    """
    for path in files:
        for raw in trees.read(path):
            tree = trees.strip(raw)
            if tree is None:
                continue
            if tree.is_word:
                raise UsageError(f"{path} has a tree that is a single word: restore the file.")
            words = " ".join(word for _, word in trees.leaves(tree))
            target = " ".join(trees.linearise(tree))
            yield Raw(words.encode(), target.encode(), {"tree": trees.write(tree)})


def _span(sections: set[int]) -> str:
    """02 to 23, or those that there are."""
    ordered = sorted(sections)
    if len(ordered) > 2 and ordered[-1] - ordered[0] == len(ordered) - 1:
        return f"{ordered[0]:02} to {ordered[-1]:02}"
    return ", ".join(f"{s:02}" for s in ordered)
