"""Names of runs, and the run that a name refers to.

A run of a study is named STUDY-PRESET/ROW/SEED, as in `table3-demo/base/0`. Fields that a command
line changed follow the preset, as in `table3-demo:steps=60/base/0`. A run that several studies
share has one name in each; names.txt in its directory lists them. Any other run has the name of its
directory: `grammar-0`.
"""

import difflib
from pathlib import Path

from t2t_jax.errors import UsageError, alternatives, writing
from t2t_jax.files import make_directory
from t2t_jax.runs import published

FILE = "names.txt"


def add(directory: Path, name: str) -> None:
    """Adds a name to the recorded names of a run."""
    if name in _recorded(directory):
        return
    make_directory(directory)
    path = directory / FILE
    with writing(path), path.open("a", encoding="utf-8") as file:
        file.write(f"{name}\n")


def names(directory: Path) -> list[str]:
    """Returns the names of a run: the recorded ones, or else the name of its directory."""
    return _recorded(directory) or [directory.name]


def parts(name: str) -> tuple[str | None, str | None, str | None, str | None]:
    """Returns the study, preset, changed fields and row of a name; None for a name without them."""
    if name.count("/") < 2:
        return None, None, None, None
    scaled_study, rest = name.split("/", 1)
    scaled_study, _, changes = scaled_study.partition(":")
    study, _, preset = scaled_study.partition("-")
    return study, preset, changes, rest.rsplit("/", 1)[0]


def title(directory: Path) -> str:
    """Returns a run's name and location: `table3-demo/base/0 (runs/105c230e313b)`."""
    if _recorded(directory) or published.is_published(directory):
        return f"{names(directory)[0]} ({published.location(directory)})"
    return str(directory)


def _recorded(directory: Path) -> list[str]:
    text = published.read(directory, FILE) or ""
    return list(dict.fromkeys(text.splitlines()))  # two processes may have added the same name


def resolve(text: str, home: Path) -> Path:
    """Returns the directory of the run that a path, or a name in the store `home`, refers to.

    The preset of a name and its changed fields may be left out: `table3/base/0`.
    """
    path = Path(text)
    if path.is_dir() or published.is_published(path):
        return path
    known = [(name, run) for run in published.directories(home) for name in names(run)]
    if not known:
        raise UsageError(
            f"{text!r} is neither a directory nor the name of a run, as the store {home} has no "
            "runs: train one first, or correct --store."
        )
    exact = [(name, run) for name, run in known if text in (name, run.name)]
    matches = exact or [(name, run) for name, run in known if text in _abbreviations(name)]
    if not matches:
        nearest = difflib.get_close_matches(text, {name for name, _ in known}, n=3, cutoff=0.0)
        raise UsageError(
            f"{home} has no run called {text!r}: the nearest are {alternatives(nearest)} "
            f"(`t2t-jax list runs --store {home}` shows all)."
        )
    runs = {run: name for name, run in matches}
    if len(runs) > 1:
        same_name = len(set(runs.values())) < len(runs)
        choices = [str(run) if same_name else name for run, name in runs.items()]
        raise UsageError(
            f"{text!r} may be {len(runs)} runs in {home}: choose {alternatives(choices[:3])} "
            f"(`t2t-jax list runs --store {home}` shows all)."
        )
    return next(iter(runs))


def _abbreviations(name: str) -> tuple[str, str]:
    """Returns a name without its changed fields, and without its preset, too."""
    study, _, row = name.partition("/")
    scaled = study.split(":")[0]
    return (f"{scaled}/{row}", f"{scaled.split('-')[0]}/{row}") if row else (name, name)
