"""The corpora by name, without numpy. `t2t-jax help corpus` adds one."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from t2t_jax.errors import UsageError, near


@dataclass(frozen=True)
class Entry:
    """A corpus.

    Attributes:
      where: the function of corpora.py that returns it; or a function of a study file, which
        yields the (source, target) texts of a split.
      fields: the config fields that name its files.
      splits, files, version: for a function of a study file, its splits, the files that it reads,
        and the hash of its code.
      options: for a diagnostic task, what the field `task_options` may set, and the defaults.
    """

    where: str
    fields: tuple[str, ...] = ()
    splits: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    version: str = ""
    options: Mapping[str, int] = field(default_factory=dict)


CORPORA: dict[str, Entry] = {
    "grammar": Entry("_grammar"),
    "multi30k": Entry("_multi30k", ("directory",)),
    "multi30k_lower": Entry("_multi30k_lower", ("directory",)),
    "wmt14": Entry("_wmt14", ("directory",)),
    "text": Entry("_text", ("train", "dev", "test")),
    "wsj": Entry("_treebank", ("directory",)),
    "wsj_sample": Entry("_treebank", ("directory",)),
    "recall": Entry("_task", options=dict(length=32, keys=4, fewest=0)),
    "copy": Entry("_task", options=dict(length=16)),
    "reverse": Entry("_task", options=dict(length=16)),
    "sort": Entry("_task", options=dict(length=16)),
    "selective_copy": Entry("_task", options=dict(length=32, items=8)),
    "induction": Entry("_task", options=dict(length=32)),
    "dyck": Entry("_task", options=dict(length=32, depth=4)),
    "listops": Entry("_task", options=dict(length=32, depth=4)),
    "needle": Entry("_task", options=dict(length=64, keys=4, distance=0)),
}


def is_task(corpus: str) -> bool:
    """Returns whether a corpus is a diagnostic task (`tasks.py`)."""
    return bool(CORPORA[corpus].options)


def parse_options(corpus: str, text: str) -> dict[str, int]:
    """Returns all options of a diagnostic task.

    Args:
      text: those that differ from the defaults, as in "keys=8,length=64".

    Raises:
      UsageError: the corpus is not a task, it has no such option, or a value is out of range.
    """
    defaults = CORPORA[corpus].options
    if not defaults and text:
        raise UsageError(
            f"corpus {corpus} has no options, but task_options={text} sets some: leave it out, or "
            f"choose one of {', '.join(name for name in CORPORA if is_task(name))}."
        )
    given: dict[str, int] = {}
    for part in text.split(",") if text else ():
        name, _, value = (x.strip() for x in part.partition("="))
        if name not in defaults:
            raise UsageError(f"corpus {corpus} has no option {name!r}: {near(name, defaults)}")
        least = min(1, defaults[name])
        if not value.isdecimal() or int(value) < least:
            raise UsageError(
                f"{name} in task_options={text} must be a whole number of at least {least}."
            )
        if name in given:
            raise UsageError(f"task_options={text} gives {name} twice: give it once.")
        given[name] = int(value)
    return {**defaults, **given}
