"""Fixtures and the --full option."""

import atexit
import itertools
import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings

from t2t_jax.cli import main
from t2t_jax.runs import study_file
from tests import toy
from tests.eight import HURRY

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
# Also in the processes that tests start.
os.environ["JAX_NUMPY_RANK_PROMOTION"] = "raise"
if "PYTEST_XDIST_WORKER" not in os.environ:  # these processes share compiled programs
    os.environ["JAX_COMPILATION_CACHE_DIR"] = tempfile.mkdtemp()
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.2"
    atexit.register(shutil.rmtree, os.environ["JAX_COMPILATION_CACHE_DIR"], ignore_errors=True)


def pytest_addoption(parser):
    parser.addoption("--full", action="store_true", help="run the exhaustive cases too")


def pytest_configure(config):
    """Compiles programs quickly instead of well, as most run once; processes inherit it."""
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {HURRY}"


LONG = ("test_commands", "test_study", "test_population", "test_training")


def pytest_collection_modifyitems(config, items):
    # Long files start first, so that both processes are busy to the end.
    items.sort(key=lambda item: item.path.stem not in LONG)
    if config.getoption("--full"):
        return
    skip = pytest.mark.skip(reason="exhaustive: run with --full")
    for item in items:
        if item.get_closest_marker("full"):
            item.add_marker(skip)


MAPS = 25_000  # Linux allows a process 65,530 by default
_finished = itertools.count(1)


@pytest.fixture(autouse=True)
def few_programs():
    """Drops compiled programs now and then: each has memory maps, without which XLA crashes."""
    yield
    if next(_finished) % 20 == 0 and "jax" in sys.modules:
        maps = Path("/proc/self/maps")
        if maps.exists() and maps.read_bytes().count(b"\n") > MAPS:
            sys.modules["jax"].clear_caches()


@pytest.fixture(scope="module", autouse=True)
def study_files():
    """Forgets, after the tests of a file, the study files that they have loaded."""
    before = study_file.entries()
    yield
    for name in [x for x, module in sys.modules.items() if hasattr(module, "__source__")]:
        study_file.forget(Path(name), before)


@pytest.fixture(scope="session")
def corpus(tmp_path_factory) -> Path:
    """A directory with the toy corpus."""
    return toy.write(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="session")
def trained(corpus, tmp_path_factory) -> tuple[Path, Path]:
    """The directory of a run of two steps on the toy corpus, and its cache, to be read alone."""
    run, cache = (tmp_path_factory.mktemp(name) for name in ("run", "cache"))
    words = toy.train(corpus, cache, steps=2, evaluate_every=2, num_buckets=1)
    assert main([*words, "--run", str(run)]) == 0
    return run, cache


@pytest.fixture
def call(capsys):
    """A function that runs a command in this process and returns what it prints, and its errors."""

    def run(*words, code=0):
        capsys.readouterr()
        assert main([str(word) for word in words]) == code
        return capsys.readouterr()

    return run


@pytest.fixture
def refused(call):
    """A function that checks that a command is refused in a sentence that mentions some words."""

    def check(words, *mentions, code=2):
        error = call(*words, code=code).err.strip().splitlines()[-1]
        assert error.startswith("t2t-jax: ")
        assert error.endswith((".", "?", ")")), error
        for mention in mentions:
            assert str(mention) in error, error
        return error

    return check


@pytest.fixture
def undrawn(monkeypatch):
    """`run` and `publish` draw no plots in this process, as that takes seconds."""
    from t2t_jax.report import charts

    monkeypatch.setattr(charts, "draw", lambda *_: [])


@pytest.fixture(scope="session")
def multi30k() -> Path:
    """A directory with the raw Multi30k files train.en.gz, train.de.gz and so on."""
    directory = os.environ.get("T2T_JAX_MULTI30K")
    if not directory:
        pytest.skip("set T2T_JAX_MULTI30K to a directory with Multi30k's train.en.gz and so on")
    if not Path(directory).is_dir():
        pytest.skip(f"T2T_JAX_MULTI30K={directory} is not a directory")
    return Path(directory)
