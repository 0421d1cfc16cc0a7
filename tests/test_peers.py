"""experiments/tools/peers measures other toolkits and checkouts alternately with this one."""

import json
import sys

import pytest

from experiments.tools.peers import run
from t2t_jax.bench import workload


@pytest.fixture
def one_short_round(monkeypatch):
    monkeypatch.setattr(run, "ROUNDS", 1)
    monkeypatch.setattr(run, "PAUSE", 0)


def checkout(directory, program, text):
    """Writes another checkout of this project whose program has this text."""
    path = directory / program
    path.parent.mkdir(parents=True)
    path.write_text(text)
    return directory


def words(out, *more):
    return ["--python", sys.executable, "--tasks", "greedy-tiny", "--out", str(out), *more]


@pytest.mark.full
@pytest.mark.parametrize("program", run.OURS, ids=str)
def test_toolkits_and_checkouts_are_compared(program, one_short_round, tmp_path, capsys):
    ctranslate2 = pytest.importorskip("ctranslate2")
    endless = "while True: print(8.0, flush=True); input()"
    before = checkout(tmp_path / "before", program, endless)
    run.main(words(tmp_path, "--against", str(before)))
    printed = capsys.readouterr()
    assert "JoeyNMT is left out: ModuleNotFoundError" in printed.err
    assert (tmp_path / "peers.txt").read_text() == printed.out
    results = json.loads((tmp_path / "peers.json").read_text())
    assert results["versions"] == {"CTranslate2": ctranslate2.__version__}
    speeds = results["tasks"]["greedy-tiny"]
    assert list(speeds) == ["t2t_jax, before", "CTranslate2", "CTranslate2, a batch a core"]
    previous = speeds["t2t_jax, before"]
    assert previous["per_second"] == [workload.SENTENCES / 8] * 3
    _, least, most = previous["ours_per_second"]
    assert previous["ours_to_it"][1:] == pytest.approx(
        [8 * x / workload.SENTENCES for x in (least, most)]
    )


def test_a_contender_that_ends_early_is_named(one_short_round, tmp_path, monkeypatch):
    root = checkout(tmp_path / "here", run.OURS[0], "print(1.0, flush=True); input(); print(1.0)")
    other = checkout(tmp_path / "other", run.OURS[0], "print(1.0, flush=True); input()")
    monkeypatch.setattr(run, "ROOT", root)
    with pytest.raises(SystemExit, match="t2t_jax, other ended in round 1"):
        run.main(words(tmp_path, "--against", str(other)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--python", "/no/python"], "/no/python"),
        (["--against", "/no/tree"], "/no/tree"),
        (["--tasks", "greedy-huge"], "greedy-huge"),
    ],
)
def test_bad_arguments_are_refused(options, message, tmp_path, capsys):
    with pytest.raises(SystemExit, match="2"):
        run.main(words(tmp_path, *options))
    assert message in capsys.readouterr().err
