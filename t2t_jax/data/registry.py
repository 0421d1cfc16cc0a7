"""The corpora by name, without numpy. `t2t-jax help corpus` adds one."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Entry:
    """A corpus.

    Attributes:
      where: the function of corpora.py that returns it; or a function of a study file, which
        yields the (source, target) texts of a split.
      fields: the config fields that name its files.
      splits, files, version: of a function of a study file: its splits, the files that it reads,
        and the hash of its code.
    """

    where: str
    fields: tuple[str, ...] = ()
    splits: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    version: str = ""


CORPORA: dict[str, Entry] = {
    "grammar": Entry("_grammar"),
    "multi30k": Entry("_multi30k", ("directory",)),
    "wmt14": Entry("_wmt14", ("directory",)),
    "text": Entry("_text", ("train", "dev", "test")),
    "wsj": Entry("_treebank", ("directory",)),
    "wsj_sample": Entry("_treebank", ("directory",)),
}
