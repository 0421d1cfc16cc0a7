"""Learning curves: perplexity against steps, FLOPs and time, of every seed."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from t2t_jax.plotting import CHOSEN, DASH, LABEL, SHAPE, Axis, Spec, facets, panel, tooltip
from t2t_jax.runs import results, store
from t2t_jax.runs.results import Run
from t2t_jax.study.collecting import Lines

AXES = {"steps": "steps", "flops": "FLOPs, counted", "seconds": "seconds"}
SHOWN = 5  # panels begin at 1 / SHOWN of their shortest run, before which rows hardly differ
POINTS = 60  # of a curve in training; more would not be visible
MARKERS = 12  # about this many of a curve's evaluations on dev are shown
SIZE = 165, 130  # of a panel, in pixels
SPLITS = "training", "dev"


class Curve(NamedTuple):
    """The perplexity of a row at the steps that all of its seeds recorded."""

    amounts: Mapping[str, np.ndarray]  # mean over seeds of each of `AXES`, [steps]
    PPL: np.ndarray  # [seeds, steps]

    @property
    def mean(self) -> np.ndarray:
        """The geometric mean over seeds, [steps]."""
        return np.exp(np.log(self.PPL).mean(axis=0))


def curves(runs: Sequence[Run]) -> tuple[Curve, Curve]:
    """Returns a row's curves in training and on dev."""
    records = [store.read_curves(run.directory) for run in runs]
    training = [{r["step"]: np.exp(min(r["nll"], 99)) for r in x if "nll" in r} for x in records]
    dev = [{r["step"]: r["dev_perplexity"] for r in x if "dev_perplexity" in r} for x in records]
    every = [rates(run, x) for run, x in zip(runs, records, strict=True)]
    means = {name: float(np.mean([x[name] for x in every])) for name in AXES}
    return _curve(means, training), _curve(means, dev)


def _curve(means: Mapping[str, float], values: Sequence[Mapping[int, float]]) -> Curve:
    steps = np.array(sorted(set.intersection(*map(set, values))), dtype=int)
    amounts = {name: rate * steps for name, rate in means.items()}
    return Curve(amounts, np.array([[x[step] for step in steps.tolist()] for x in values]))


def rates(run: Run, records: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Returns what a step of a run consumes, by the names in `AXES`.

    Seconds are the median over steps, so that pauses do not count, and nan if they are not known. A
    run that was trained at once with others has its share.
    """
    seconds = results.step_seconds(run.result, records) or float("nan")
    return {"steps": 1, "flops": run.result["flops"] / run.result["steps"], "seconds": seconds}


def chart(lines: Lines, styles: Mapping[str, Spec]) -> Spec:
    """Returns a chart of perplexity against each of `AXES`, in training and on dev.

    Every row of panels has base and a group of the table, or several groups of a single row. Time
    is shown if all runs have the same device.
    """
    every, values = dict[str, tuple[Curve, Curve]](), list[dict[str, Any]]()
    for line in (line for line in lines if line.runs):
        both, name = curves(line.runs), line.row.name
        if all(x.PPL.size for x in both):
            every[name] = both
            values += _values(line.runs, both, styles[name])
    devices = {run.device for line in lines for run in line.runs}
    axes = AXES | {"seconds": f"seconds on {', '.join(devices)}"}
    if len(devices) > 1:
        del axes["seconds"]
    return {
        "data": {"values": values},
        "transform": [CHOSEN, {"flatten": ["PPL", *AXES]}],
        "vconcat": [
            _panels({name: every[name] for name in rows if name in every}, styles, axes)
            for rows in facets([(line.row.name, line.row.group) for line in lines])
        ],
    }


def _values(
    runs: Sequence[Run], both: tuple[Curve, Curve], style: Spec
) -> Iterator[dict[str, Any]]:
    """Yields the mean and, if there are several, every seed of a row in training and on dev."""
    for split, curve in zip(SPLITS, both, strict=True):
        kept = _kept(split, len(curve.mean))
        shared = style | {axis: _rounded(curve.amounts[axis][kept]) for axis in AXES}
        seeds = {str(run.seed): PPL for run, PPL in zip(runs, curve.PPL, strict=True)}
        for seed, PPL in ({"mean": curve.mean} | seeds if len(seeds) > 1 else seeds).items():
            main = seed == "mean" or len(seeds) == 1
            values = {"split": split, "seed": seed, "main": main, "PPL": _rounded(PPL[kept])}
            yield shared | values


def _kept(split: str, n: int) -> np.ndarray:
    """Returns the indices of the points that are drawn of n, the last one included."""
    if split == "dev":
        return np.arange(n)[:: -max(1, n // MARKERS)][::-1]
    return np.unique(np.geomspace(1, n, min(n, POINTS)).round().astype(int)) - 1


def _rounded(values: np.ndarray) -> list[float]:
    return [float(f"{x:.4g}") for x in values.tolist()]


def _panels(
    every: Mapping[str, tuple[Curve, Curve]], styles: Mapping[str, Spec], axes: Mapping[str, str]
) -> Spec:
    """Returns a panel for each of the axes; the last one has labels."""
    size = SIZE[0], max(SIZE[1], LABEL * len(every))
    least = min((x.amounts["steps"][-1] for x, _ in every.values()), default=0) / SHOWN
    late = [x.mean[x.amounts["steps"] >= least] for both in every.values() for x in both]
    y = Axis.over("PPL", "perplexity", np.concatenate([*late, []]).tolist(), log=True)
    last = [styles[row] | {"PPL": dev.mean[-1]} for row, (_, dev) in every.items()]
    own, panels = {"filter": {"field": "row", "oneOf": list(every)}}, list[Spec]()
    for name, title in axes.items():
        ends = [curve.amounts[name][-1] for both in every.values() for curve in both]
        ends = [x for x in ends if np.isfinite(x)] or [1.0]
        x = Axis(name, title, min(ends) / SHOWN, 1.1 * max(ends), log=True)
        inside = {"filter": f"datum.{name} >= {x.low} && datum.PPL <= {y.high}"}
        labelled = last if name == [*axes][-1] else []
        panels.append(panel(x, y, size, _layers(), labelled) | {"transform": [own, inside]})
        for layer, split in zip(panels[-1]["layer"], SPLITS, strict=False):
            layer["transform"] = [{"filter": f"datum.split === '{split}'"}]
        y = y._replace(title=None)
    return {"hconcat": panels}


def _layers() -> list[tuple[str, Spec]]:
    """Returns lines and points; a mean over seeds, or a single seed, has larger ones."""

    def sizes(main: float, seed: float) -> Spec:
        return {"size": {"condition": {"test": "datum.main", "value": main}, "value": seed}}

    shared = {
        "detail": [{"field": "row"}, {"field": "seed"}],
        "opacity": {"condition": {"test": "datum.main", "value": 1}, "value": 0.4},
        "tooltip": tooltip("row", "seed", "split", "PPL", *AXES, **dict.fromkeys(AXES, ".4~s")),
    }
    return [("line", shared | DASH | sizes(1.2, 0.4)), ("point", shared | SHAPE | sizes(25, 5))]
