"""Published runs are read as runs of a store, damaged ones refused; writers share a store."""

import dataclasses
import json
import lzma
import shutil
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import yaml

from t2t_jax import files
from t2t_jax.errors import RunError, UsageError
from t2t_jax.report import learning
from t2t_jax.report.study import samples
from t2t_jax.runs import claim, published, store
from t2t_jax.study import collecting, formats, publish
from tests import stored

ROWS = 20
FILE = "runs.jsonl.xz"


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """The demo's runs in directories of their own."""
    return stored.unpacked(tmp_path_factory.mktemp("store"))


@cache
def lines(home):
    grid = stored.grid(home, ROWS)
    return grid, stored.compared(grid)


@pytest.mark.parametrize("form", formats.FORMATS)
def test_every_table_is_that_of_the_store(form, home):
    ours, theirs = (formats.render([lines(place)], form) for place in (stored.DEMO, home))
    assert ours.replace(str(stored.DEMO), str(home)) == theirs
    assert "base" in ours


def test_curves_and_translations_are_those_of_the_store(home, tmp_path):
    (grid, ours), (_, theirs) = lines(stored.DEMO), lines(home)
    for line, other in zip(ours, theirs, strict=True):
        both = zip(learning.curves(line.runs), learning.curves(other.runs), strict=True)
        for curve, same in both:
            np.testing.assert_array_equal(curve.PPL, same.PPL)
            np.testing.assert_equal(dict(curve.amounts), dict(same.amounts))
    shown = samples(grid, ours, stored.split(tmp_path))
    assert shown == samples(grid, theirs, stored.split(tmp_path))
    assert len(shown[0]["translations"]) == ROWS
    run = ours[0].runs[0].directory
    text = (home / run.name / "dev.de").read_text()
    assert "".join(f"{line}\n" for line in store.read_translations(run, "dev", "de")) == text


def test_publishing_a_store_makes_the_same_file_again(home, tmp_path):
    folder = publish.publish(*lines(home), tmp_path)
    written = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]
    for path in written:
        assert (folder / path).read_bytes() == (stored.DEMO / path).read_bytes()
    assert len(written) == 3


@pytest.mark.full
def test_a_card_has_the_data_the_command_and_the_origin_of_its_table(tmp_path, call, undrawn):
    words = ["table3", "--store", stored.DEMO]
    for card in (["--card"], [], ["--card"]):  # neither leaves a table of the other form
        folder = Path(call("publish", *words, "--to", tmp_path, *card).out.strip())
        made = {path.name for path in folder.glob("*.md")}
        assert made == ({"README.md"} if card else {"table.md"})
    _, front, text = (folder / "README.md").read_text().split("---\n", 2)
    front = yaml.safe_load(front)
    assert front["configs"] == [{"config_name": "runs", "data_files": FILE}]
    assert front["task_categories"] == ["translation"]
    assert text.startswith("# Variations on the Transformer\n\n20 runs of `t2t-jax run table3 ")
    assert "(seeds 0). Made on 1 x cpu (2 cores, x86_64) with python 3.11.7, jax " in text
    assert text.endswith(f"\n\n{call('table', *words, '--format', 'md', '--notes').out}")


def test_a_published_folder_is_shown_with_its_settings_and_without_paths(home, tmp_path, call):
    grid, found = lines(home)
    for changes in ({"beam": 1}, {"directory": "/data"}):  # the settings of the last time are kept
        folder = publish.publish(dataclasses.replace(grid, changes=changes), found, tmp_path)
    (path,) = (folder / "studies").iterdir()
    assert json.loads(path.read_text())["fields"] == {}
    assert "1280" in call("table", "table3", "--store", folder).out


def test_unpacking_restores_every_file_and_keeps_what_is_there(home, tmp_path):
    name = collecting.collect(stored.grid())[0].runs[0].directory.name
    (tmp_path / name).mkdir()
    (tmp_path / name / "config.json").write_text("begun")
    assert published.unpack(stored.DEMO, tmp_path) == ROWS - 1
    assert [path.read_text() for path in (tmp_path / name).iterdir()] == ["begun"]
    (tmp_path / name / "config.json").rename(tmp_path / name / "names.txt")  # named, not yet begun
    assert published.unpack(stored.DEMO, tmp_path) == 1
    for path in home.glob("*/*"):
        assert read(tmp_path / path.relative_to(home)) == read(path), path
    assert len(list(tmp_path.glob("*/*"))) == len(list(home.glob("*/*")))
    with pytest.raises(UsageError, match="name a folder that `publish` wrote"):
        published.unpack(tmp_path, tmp_path)


def test_two_processes_may_unpack_at_once(tmp_path, monkeypatch):
    """One finds no directory of a run, and another process makes it before the first is done."""
    write, others = files.write, []

    def late(path, content):
        write(path, content)
        if path.name == "config.json" and not others:
            others.append(None)
            others[0] = published.unpack(stored.DEMO, tmp_path)

    monkeypatch.setattr(files, "write", late)
    published.unpack(stored.DEMO, tmp_path)
    assert others == [ROWS - 1]
    assert len(list(tmp_path.iterdir())) == len(list(tmp_path.glob("*/result.json"))) == ROWS


def read(path):
    text = path.read_text()
    return json.loads(text) if path.suffix == ".json" else text


def test_a_run_in_a_directory_goes_before_the_published_one(home, tmp_path):
    shutil.copy(stored.DEMO / FILE, tmp_path)
    name = collecting.collect(stored.grid())[0].runs[0].directory.name
    directory = shutil.copytree(home / name, tmp_path / name)
    store.write_result(directory, store.read_result(directory) | {"dev_perplexity": 1.5})
    assert lines(tmp_path)[1][0].PPL.spread.mean == 1.5


def flipped(content):
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


HARMS = {
    "cut": lambda content: content[: len(content) // 2],
    "flipped": flipped,
    "no xz": lambda content: b"nothing of xz",
    "no JSON": lambda content: lzma.compress(b"no JSON\n"),
    "no run": lambda content: lzma.compress(b'{"config.json": {}}\n'),
}


@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("words", [["table", "table3"], ["list", "runs"]])
def test_a_damaged_file_is_refused_in_a_sentence(harm, words, tmp_path, refused):
    (tmp_path / FILE).write_bytes(HARMS[harm]((stored.DEMO / FILE).read_bytes()))
    refused([*words, "--store", tmp_path], f"{tmp_path / FILE} is damaged (")


def test_what_is_published_is_only_read(tmp_path, call, refused):
    shutil.copy(stored.DEMO / FILE, tmp_path)
    where = ["--store", tmp_path]
    for words in (["table", "table3"], ["list", "runs"]):
        call(*words, *where)
    refused(["run", "table3", *where, "--cache", tmp_path / "cache"], "which are read-only")
    for words in (["translate", "table3/base/0"], ["evaluate", "table3-demo/base/0"]):
        refused([*words, *where], f"table3-demo/base/0 ({tmp_path / FILE}) was published without")
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


def test_a_name_has_the_changed_fields_behind_the_preset():
    grid = dataclasses.replace(stored.grid(), changes={"steps": 60, "N": 1, "train": "a/file"})
    assert grid.run_name(grid.rows[0], 2) == "table3-demo:steps=60,N=1/base/2"


def test_writers_of_one_file_do_not_disturb_each_other(tmp_path):
    path, contents = tmp_path / "request.json", [{"writer": "x" * 50_000 * i} for i in range(8)]
    with ThreadPoolExecutor(8) as pool:
        for _ in pool.map(lambda i: files.write_json(path, contents[i % 8]), range(160)):
            pass
    assert files.read_json(path) in contents
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_cannot_be_written_leaves_nothing_behind(tmp_path):
    (tmp_path / "result.json").mkdir()
    with pytest.raises(RunError, match="cannot write"):
        files.write(tmp_path / "result.json", "text")
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"]


def test_a_run_that_is_moved_aside_never_takes_the_place_of_another(tmp_path):
    for aside in ("run-0", "run-1", "run-0"):
        (tmp_path / "run").mkdir()
        assert claim.move_aside(tmp_path / "run") == tmp_path / "replaced" / aside
        shutil.rmtree(tmp_path / "replaced" / "run-0")
        if aside == "run-0":
            (tmp_path / "replaced" / "run-0").mkdir()


def test_a_lock_is_seen_by_who_may_write_and_free_to_who_may_not(tmp_path):
    (tmp_path / "lock").touch()
    assert not claim.is_locked(tmp_path)
    (tmp_path / "lock").unlink()
    (tmp_path / "lock").mkdir()  # which cannot be opened for writing
    assert not claim.is_locked(tmp_path)
