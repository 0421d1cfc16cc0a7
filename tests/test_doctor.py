"""`doctor` reports the problems of a machine, and none where there are none."""

import json
from importlib import metadata

import pytest

from t2t_jax import doctor


@pytest.fixture
def doctor_output(tmp_path, call):
    words = "doctor", "--cache", tmp_path / "cache", "--store", tmp_path / "runs"
    return lambda *options, code: call(*words, *options, code=code)


def test_a_machine_without_problems_passes(doctor_output, monkeypatch):
    monkeypatch.setattr(doctor, "SPACE", 0)
    monkeypatch.setattr(doctor, "MEMORY", 0)
    out = doctor_output(code=0).out
    assert "fix" not in out
    for subject in ("packages", "memory", "cache", "store", "corpora", "devices", "a step"):
        assert f"\nok    {subject} " in f"\n{out}", subject


def test_problems_are_reported_with_their_remedies(tmp_path, doctor_output, monkeypatch):
    monkeypatch.setattr(doctor, "SPACE", 1e9)
    monkeypatch.setattr(doctor, "MEMORY", 1e9)
    monkeypatch.setattr(metadata, "requires", lambda name: ["jax<0.2", "no-such-package>=1"])
    (tmp_path / "runs").write_text("a file where the store should be")
    damaged = tmp_path / "cache" / "text-en-de-0"
    damaged.mkdir(parents=True)
    (damaged / "meta.json").write_text(json.dumps({"format": -1}))
    out, err = doctor_output("--mesh", "data=3,tensor=5", code=1)
    for message in (
        "is not <0.2",
        "no-such-package is missing",
        "close other programs",
        "free some space",
        "File exists",
        "was prepared in format -1",
        "takes 15 devices",
    ):
        assert message in out, message
    assert "7 of these checks" in err


def test_packages_are_not_checked_where_the_project_runs_from_its_folder(tmp_path, monkeypatch):
    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "requires", missing)
    found = next(doctor.examine(tmp_path, tmp_path, ""))
    assert (found.check, found.remedy) == ("packages", "")
    assert "without being installed" in found.result
