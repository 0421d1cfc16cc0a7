"""The files of a run's directory.

    config.json data.json vocabulary.model       what determines the run
    environment.json                             where it was begun, and by which programs
    metrics.jsonl checkpoints/                   its progress
    final/                                       averaged parameters
    likelihood.statistics.json                   negative log-likelihood and number of tokens of
                                                 each sentence of dev
    SPLIT.LANGUAGE SPLIT.statistics.json         translations, and the metric's statistics of each
    contrastive.statistics.json                  judgements of minimal pairs: type, distance, right
    result.json                                  written last, with its own checksum, and again when
                                                 another split or contrastive pairs are scored
    failed.json                                  instead of a result: why there is none
    study.py modules.json                        a copy of the study file, if the run uses its code,
                                                 and of the modules beside it that it imports
    names.txt                                    the names of the run, one a line
    lock                                         held by the process at work

Files are written atomically: each is complete or absent. Only lines are appended to names.txt and
metrics.jsonl. Files are read through `published.read`, because a run may also be published.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from t2t_jax import config
from t2t_jax.config import Config
from t2t_jax.data.cache import Dataset
from t2t_jax.data.prepare import open_corpus
from t2t_jax.data.vocabulary import Vocabulary
from t2t_jax.errors import RunError, UsageError
from t2t_jax.files import write, write_json
from t2t_jax.runs import published, study_file
from t2t_jax.runs.identity import data_facts, sha256
from t2t_jax.runs.names import title
from t2t_jax.runs.published import FAILURE

Report = Callable[[str], object]  # receives lines for the person at the keyboard
# Names of statistics that do not belong to a split, and their keys in a result.
LIKELIHOOD, CONTRASTIVE = "likelihood", "contrastive"
INPUTS = "config.json", "data.json", "vocabulary.model", *study_file.COPIES  # determine a run


def read_config(directory: Path) -> Config:
    """Returns the config of a run; loads its copy of a study file if the config needs it.

    Raises a UsageError if there is no run, or if its config.json names a field that does not exist.
    """
    fields = published.read(directory, "config.json")
    if fields is None:
        raise UsageError(f"{directory} is not a run, as it has no config.json: train one first.")
    try:
        try:
            return config.replace(Config(), **fields)
        except UsageError:
            if not study_file.load_copy(directory):
                raise
            return config.replace(Config(), **fields)
    except (UsageError, TypeError) as error:  # TypeError if it is not a JSON object
        raise UsageError(f"config.json of {title(directory)}: {error}") from None


def read_data(directory: Path) -> dict[str, Any]:
    """Returns what determines a run besides its config, as `claim.claim` wrote it."""
    if (facts := published.read(directory, "data.json")) is None:
        raise UsageError(f"{title(directory)} has no data.json: restore it.")
    return facts


def read_curves(directory: Path) -> list[dict[str, Any]]:
    """Returns the records of a run's metrics.jsonl; an empty list before the first."""
    return published.read(directory, "metrics.jsonl") or []


def read_translations(directory: Path, split: str, language: str) -> list[str] | None:
    """Returns the translations of a split, or None if they were not kept."""
    text = published.read(directory, f"{split}.{language}")
    return None if text is None else text.removesuffix("\n").split("\n")


def check_facts(directory: Path, facts: Mapping[str, Any]) -> None:
    """Raises a UsageError that names the first fact in which a stored run differs."""
    stored = read_data(directory)
    for name, value in facts.items():
        if stored.get(name) != value:
            raise UsageError(
                f"{title(directory)} was begun with {name} {stored.get(name)}, but here it is "
                f"{value}: give this run another directory (`train --run`) or store (`run --store`)"
                f", or restore the old {name}."
            )


def open_dataset(directory: Path, c: Config, cache: Path, report: Report) -> Dataset:
    """Returns the dataset of a run, prepared if necessary, from the paths that a config names."""
    dataset = open_corpus(c.data, cache, report=report)
    check_facts(directory, data_facts(dataset))
    return dataset


def read_vocabulary(directory: Path) -> Vocabulary:
    """Returns the vocabulary of a run, checked against the fingerprint in data.json."""
    path = directory / "vocabulary.model"
    if not path.exists():
        raise UsageError(
            f"{title(directory)} has no vocabulary.model: restore it from where it was trained."
        )
    vocabulary, trained = Vocabulary(path.read_bytes()), read_data(directory)["vocabulary"]
    if vocabulary.fingerprint != trained:
        raise UsageError(
            f"vocabulary.model of {title(directory)} is not the vocabulary that the checkpoint was "
            f"trained with (its sha256 is {vocabulary.fingerprint[:12]}, not {trained[:12]}): "
            "restore that one."
        )
    return vocabulary


def write_result(directory: Path, result: Mapping[str, Any]) -> None:
    """Writes result.json, which marks the run as finished, and deletes failed.json."""
    write_json(directory / "result.json", {**result, "sha256": sha256(result)})
    delete_failure(directory)


def read_result(directory: Path, report: Report = lambda _: None) -> dict[str, Any] | None:
    """Returns the result of a run, or None if it is absent, edited or incomplete."""
    try:
        result = published.read(directory, "result.json")
        if result is None:
            return None
        checksum, result = result["sha256"], {n: x for n, x in result.items() if n != "sha256"}
        if checksum == sha256(result) and "scoring" in result:
            return result
    except (UsageError, KeyError, TypeError, AttributeError):
        pass
    report(
        f"result.json of {title(directory)} was edited, cut short or written in an older format. "
        "It counts as missing: the command that made it makes it again."
    )
    return None


def finished_at(directory: Path) -> float:
    """Returns when a run's result was written; published results count as the oldest."""
    path = directory / "result.json"
    return path.stat().st_mtime if path.exists() else 0.0


def write_statistics(directory: Path, name: str, statistics: Sequence[Sequence[Any]]) -> str:
    """Writes the statistics of every sentence, whose sums give a metric; returns their checksum."""
    write(directory / f"{name}.statistics.json", json.dumps(statistics))
    return sha256(statistics)


def read_statistics(
    directory: Path, result: Mapping[str, Any], name: str
) -> list[list[Any]] | None:
    """Returns statistics of a finished run, or None if there are none or they were edited."""
    try:
        others = {name: result.get(name, {}) for name in (LIKELIHOOD, CONTRASTIVE)}
        scoring = {**others, **result["scoring"]}
        statistics = published.read(directory, f"{name}.statistics.json")
        if sha256(statistics) == scoring[name]["statistics"]:
            return statistics
    except (UsageError, KeyError):
        pass
    return None


def write_failure(directory: Path, error: Exception, log: Path | None = None) -> None:
    """Writes failed.json: why a run has no result, and where the traceback of its error is."""
    directory.mkdir(parents=True, exist_ok=True)
    expected = isinstance(error, (RunError, UsageError))
    message = (str(error) if expected else repr(error)).strip().split("\n")[0]
    traceback = "" if expected or log is None else f" (traceback: {log})"
    write_json(directory / FAILURE, {"error": message + traceback})


def read_failure(directory: Path) -> str | None:
    """Returns why a run has no result, or None if it has not failed."""
    failure = published.read(directory, FAILURE)
    return failure and failure["error"]


def delete_failure(directory: Path) -> None:
    """Deletes failed.json, so that the run is tried again."""
    (directory / FAILURE).unlink(missing_ok=True)
