"""The help of commands, suggestions for wrong options, public names, and `doctor`."""

import argparse
import doctest
import os
import subprocess
import sys
from importlib import import_module, metadata
from pathlib import Path

import pytest

import t2t_jax
from t2t_jax import config
from t2t_jax.attention.registry import MECHANISMS
from t2t_jax.cli import _parse, main
from t2t_jax.commands import doctor
from t2t_jax.commands.arguments import add_commands
from t2t_jax.errors import UsageError, near

ROOT = Path(__file__).parents[1]
DEMO = "experiments/results/table3-demo"

FIELDS = {
    "run table3": config.SECTION_OF,
    "table table3": config.SECTION_OF,
    "train grammar": config.SECTION_OF,
    "prepare grammar": ["corpus", "batch_tokens"],
    "translate base": ["beam", "alpha", "max_extra"],
}


@pytest.mark.parametrize("command", FIELDS)
def test_config_fields_are_options_and_help_names_none_of_them(command, capsys):
    with pytest.raises(SystemExit):
        main([*command.split(), "--help"])
    help = capsys.readouterr().out
    assert not [name for name in config.SECTION_OF if f" --{name} {name.upper()}" in help]
    for name in FIELDS[command]:
        kind = config.field_type(name)
        word = "word" if isinstance(kind, tuple) else {int: "3", float: "0.25", str: "word"}[kind]
        value = getattr(_parse([*command.split(), f"--{name}", word]), name)
        assert value == (word if isinstance(kind, tuple) else kind(word))


def test_what_a_command_cannot_use_is_refused(call, refused):
    refused(["run", "table3", "surplus"], "'surplus'")
    assert "File name too long" in call("translate", "r" * 300, code=1).err


def test_every_command_has_a_function():
    parser = argparse.ArgumentParser()
    add_commands(parser)
    names = []
    parsers = [parser]
    while parsers:
        for action in parsers.pop()._actions:
            if isinstance(action, argparse._SubParsersAction):
                parsers += action.choices.values()
                names += [p.get_default("command") for p in action.choices.values()]
    assert len(names) > 15
    for name in filter(None, names):
        module, _, function = name.partition(".")
        assert callable(getattr(import_module(f"t2t_jax.commands.{module}"), function))


# What printing a table must not import.
HEAVY = "jax", "flax", "optax", "sentencepiece", "vl_convert", "PIL", "t2t_jax.data.grammar"
LIGHT = """
import sys
from t2t_jax.cli import main
assert main(sys.argv[1:]) == 0
import t2t_jax
t2t_jax.Config(), t2t_jax.Row, t2t_jax.MECHANISMS
print(*sys.modules, file=sys.stderr)
"""


@pytest.mark.parametrize("words", [["list", "studies"], ["table", "table3", "--store", DEMO]])
def test_what_reads_stored_results_imports_no_jax_no_corpus_and_no_model(words):
    done = subprocess.run(
        [sys.executable, "-c", LIGHT, *words], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout
    imported = done.stderr.split()
    assert "t2t_jax.study.declaration" in imported
    assert not {*HEAVY} & {*imported}
    assert not [name for name in imported if name.startswith("t2t_jax.training.step")]


def test_lapack_has_no_threads_of_its_own():
    code = """if True:
        import os
        from t2t_jax.cli import main
        main(["list", "presets"])
        before = len(os.listdir("/proc/self/task"))
        import scipy.linalg
        print(len(os.listdir("/proc/self/task")) - before)"""
    env = {name: x for name, x in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.splitlines()[-1] == "0"


def test_output_is_utf_8_in_every_locale():
    words = [sys.executable, "-m", "t2t_jax.cli", "help", "study"]
    env = os.environ | {"PYTHONIOENCODING": "latin-1"}
    done = subprocess.run(words, env=env, capture_output=True, timeout=60, check=True)
    assert done.stdout == (ROOT / "t2t_jax" / "help" / "study.md").read_bytes()


MEANT = {
    "--batch-token=32": "'--batch_tokens'",
    "--n": "'--N'",
    "--d_modle": "'--d_model'",
    "--stroe": "'--store'",
}


@pytest.mark.parametrize("word", MEANT)
def test_an_error_suggests_the_option_that_is_meant(word):
    with pytest.raises(UsageError) as error:
        _parse(["run", "table3", word])
    name = word.partition("=")[0]
    assert str(error.value) == f"there is no option {name!r} here: did you mean {MEANT[word]}?"


def test_an_option_that_resembles_none_is_refused_without_a_list():
    with pytest.raises(UsageError, match=r"'--xyzzy' here: see t2t-jax run --help\.$"):
        _parse(["run", "table3", "--xyzzy", "3"])
    with pytest.raises(UsageError, match=r"'--peak_l' here: (?!did you mean '--peak_lr')"):
        _parse(["translate", "base", "--peak_l", "1"])  # it takes the fields of decoding alone
    with pytest.raises(UsageError, match=r"did you mean 'peak_lr'\?"):
        config.replace(config.Config(), peek_lr=1.0)


def test_a_misspelt_choice_is_found_in_another_case():
    assert near("Linear", MECHANISMS) == "did you mean 'linear'?"
    assert near("zzz", ["one", "two"]) == "the choices are one, two."


def test_every_public_name_exists_and_is_documented():
    assert dir(t2t_jax) == sorted(t2t_jax.__all__)
    for name in dir(t2t_jax):
        assert getattr(t2t_jax, name).__doc__


def test_the_examples_run():
    results = doctest.testmod(t2t_jax)
    assert results.attempted > 2
    assert results.failed == 0


@pytest.fixture
def doctor_output(tmp_path, call):
    words = "doctor", "--cache", tmp_path / "cache", "--store", tmp_path / "runs"
    return lambda *options, code: call(*words, *options, code=code)


def test_a_machine_without_problems_passes(doctor_output, monkeypatch):
    monkeypatch.setattr(doctor, "SPACE", 0)
    monkeypatch.setattr(doctor, "MEMORY", 0)
    out = doctor_output(code=0).out
    assert "fix" not in out
    for subject in ("packages", "memory", "cache", "store", "devices", "a step"):
        assert f"\nok    {subject} " in f"\n{out}", subject


def test_memory_that_caches_files_is_free(tmp_path, monkeypatch):
    monkeypatch.setattr(doctor, "MEMINFO", tmp_path / "meminfo")
    (tmp_path / "meminfo").write_text("MemFree: 9 kB\nMemAvailable: 5242880 kB\nPages_Total: 7\n")
    found = next(x for x in doctor.examine(tmp_path, tmp_path, "") if x.check == "memory")
    assert (found.result, found.remedy) == ("5.0 GiB free", "")


def test_problems_are_reported_with_their_remedies(tmp_path, doctor_output, monkeypatch):
    monkeypatch.setattr(doctor, "SPACE", 1e9)
    monkeypatch.setattr(doctor, "MEMORY", 1e9)
    monkeypatch.setattr(metadata, "requires", lambda name: ["jax<0.2", "no-such-package>=1"])
    (tmp_path / "runs").write_text("a file where the store should be")
    out, err = doctor_output("--mesh", "data=3,tensor=5", code=1)
    for message in (
        "is not <0.2",
        "no-such-package is missing",
        "close other programs",
        "free some space",
        "File exists",
        "takes 15 devices",
    ):
        assert message in out, message
    assert "6 of these checks" in err


def test_packages_are_not_checked_where_the_project_runs_from_its_folder(tmp_path, monkeypatch):
    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "requires", missing)
    found = next(doctor.examine(tmp_path, tmp_path, ""))
    assert (found.check, found.remedy) == ("packages", "")
    assert "without being installed" in found.result
