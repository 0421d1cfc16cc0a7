"""The learning rates that transfer.py calls best, and the fits of scaling_laws.py."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from experiments import mechanisms, scaling_laws, transfer
from t2t_jax.runs import published

RATES = [0.001, 0.002, 0.004, 0.008]


@pytest.mark.parametrize("best", [0.0017, 0.0031, 0.0055])
def test_the_lowest_point_of_a_parabola_is_found_between_the_rates(best):
    NLL = 2 + 0.1 * np.log2(np.array(RATES) / best) ** 2
    assert transfer.lowest(RATES, NLL) == pytest.approx(best)


@pytest.mark.parametrize("end", [0, -1])
def test_an_end_of_the_range_is_returned_as_it_is(end):
    NLL = abs(np.log2(np.array(RATES) / RATES[end]))
    assert transfer.lowest(RATES, NLL) == RATES[end]


def test_the_cost_of_a_transferred_rate_is_above_the_lowest_NLL_of_each_seed():
    narrow = np.array([[3.0, 2.0, 2.5, 4.0], [3.0, 2.9, 2.6, 4.0]])  # the second rate in the mean
    wide = np.array([[2.0, 2.4, 3.0, 5.0], [2.1, 2.3, 3.0, 5.0]])
    of_wide = transfer.summary(RATES, wide, narrow)
    assert of_wide["transferred"] == pytest.approx((0.4 + 0.2) / 2)
    assert of_wide["NLL"] == pytest.approx(2.05)
    assert of_wide["interval"] == pytest.approx([0.001, 0.001])
    assert transfer.summary(RATES, wide[:1], narrow[:1])["interval"] is None


def test_a_fit_recovers_the_law_that_made_the_runs():
    expected = 1.5, 1.2, 0.4, 2.0, 0.35
    N, D = (x.ravel() for x in np.meshgrid([0.2, 0.5, 0.9, 1.5], [0.18, 0.37, 0.74, 1.47]))
    NLL = 1.5 + 1.2 / N**0.4 + 2.0 / D**0.35
    found = scaling_laws.fit(N, D, NLL)
    assert found == pytest.approx(expected, rel=0.01)
    outlier = NLL.copy()
    outlier[5] *= 1.1
    robust = scaling_laws.fit(N, D, outlier)
    assert scaling_laws.law(robust, N, D) == pytest.approx(NLL, rel=0.005)


@pytest.mark.parametrize("N", [2, 6])
def test_branches_of_completep_are_divided_by_the_number_of_layers(N):
    def add_norm(name):
        scale = {"attention": 3.0, "feed_forward": 5.0}[name]
        return SimpleNamespace(norm=lambda x: scale * x, drop=lambda x, P_drop: x + P_drop)

    layer = SimpleNamespace(c=SimpleNamespace(N=N), add_norm=add_norm)
    sublayers = {"attention": lambda x: x**2, "feed_forward": lambda x: x - 1}
    middle = 0.7 + 2 / N * ((3 * 0.7) ** 2 + 0.1)
    expected = middle + 2 / N * (5 * middle - 1 + 0.1)
    assert transfer.complete(layer, 0.7, sublayers, 0.1) == pytest.approx(expected)


@pytest.mark.parametrize("name", transfer.STUDIES)
def test_the_stored_rates_follow_from_the_stored_runs(name):
    folder = transfer.RESULTS / f"{name}-demo"
    if name == "transfer_depth" and not folder.exists():
        pytest.skip("no run of it is stored")
    measured = transfer.measure(mechanisms.stored(name, "demo"), *transfer.STUDIES[name])
    both = json.dumps(measured), (folder / "best.json").read_text()
    rounded = (json.loads(text, parse_float=lambda x: f"{float(x):.9g}") for text in both)
    assert next(rounded) == next(rounded)  # other CPUs round differently


@pytest.mark.full
def test_the_stored_fits_are_of_the_stored_runs():
    """No outputs of documents are published."""
    stored = json.loads((scaling_laws.RESULTS / "laws.json").read_text())
    lines = mechanisms.stored("scaling_laws", "text")
    for name, x in scaling_laws.points(lines).items():
        assert stored[name]["runs"] == x.tolist()
        N, D, _, NLL = x.T
        best = scaling_laws.fit(N, D, NLL)
        assert stored[name]["fit"] == pytest.approx(best, rel=1e-3)
        errors = abs(scaling_laws.law(best, N, D) - NLL)
        assert stored[name]["error"] == pytest.approx(errors.mean(), rel=1e-3)
        rest = N.max() > N
        widest = scaling_laws.law(scaling_laws.fit(N[rest], D[rest], NLL[rest]), N, D) - NLL
        assert stored[name]["error_of_widest"] == pytest.approx(abs(widest[~rest]).mean(), rel=1e-3)
        low, high = stored[name]["interval"]
        assert all(a <= x <= b for a, x, b in zip(low, best, high, strict=True))
    runs = published.directories(scaling_laws.RESULTS)
    assert not any(published.read(run, "test.de") for run in runs)
