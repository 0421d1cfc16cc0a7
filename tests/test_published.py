"""Published runs are read as those of a store, and a damaged file is refused."""

import dataclasses
import json
import lzma
import shutil
from functools import cache

import numpy as np
import pytest

from t2t_jax import files
from t2t_jax.cli import main
from t2t_jax.errors import UsageError
from t2t_jax.report import learning
from t2t_jax.report.samples import samples
from t2t_jax.runs import published, store
from t2t_jax.study import collecting, formats, publish, tables
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
    assert len(shown[0].translations) == ROWS
    run = ours[0].runs[0].directory
    text = (home / run.name / "dev.de").read_text()
    assert "".join(f"{line}\n" for line in store.read_translations(run, "dev", "de")) == text


def test_publishing_a_store_makes_the_same_file_again(home, tmp_path):
    folder = publish.publish(*lines(home), tmp_path)
    written = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]
    for path in written:
        assert (folder / path).read_bytes() == (stored.DEMO / path).read_bytes()
    assert len(written) == 3


def test_a_published_folder_is_shown_with_its_settings_and_without_paths(home, tmp_path, capsys):
    grid, found = lines(home)
    for changes in ({"beam": 1}, {"directory": "/data"}):  # the settings of the last time are kept
        folder = publish.publish(dataclasses.replace(grid, changes=changes), found, tmp_path)
    (path,) = (folder / "studies").iterdir()
    assert json.loads(path.read_text())["fields"] == {}
    assert main(["table", "table3", "--store", str(folder)]) == 0
    assert "1280" in capsys.readouterr().out


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


def edited_score(text):
    return text.replace('"dev_perplexity": 2.18', '"dev_perplexity": 1.18')


def test_an_edited_result_counts_as_missing(tmp_path, capsys):
    text = edited_score(lzma.decompress((stored.DEMO / FILE).read_bytes()).decode())
    (tmp_path / FILE).write_bytes(lzma.compress(text.encode()))
    assert main(["table", "table3", "--store", str(tmp_path)]) == 0
    out, error = capsys.readouterr()
    assert f"result.json of table3-demo/base/0 ({tmp_path / FILE}) was edited" in error
    assert "base: seed 0 stopped at step 1,280 of 1,280" in out


def cut(content):
    return content[: len(content) // 2]


def flipped(content):
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


def no_xz(content):
    return b"nothing of xz"


def no_json(content):
    return lzma.compress(b"no JSON\n")


def no_run(content):
    return lzma.compress(b'{"config.json": {}}\n')


@pytest.mark.parametrize("harm", [cut, flipped, no_xz, no_json, no_run])
@pytest.mark.parametrize("words", [["table", "table3"], ["list", "runs"]])
def test_a_damaged_file_is_refused_in_a_sentence(harm, words, tmp_path, capsys):
    (tmp_path / FILE).write_bytes(harm((stored.DEMO / FILE).read_bytes()))
    assert main([*words, "--store", str(tmp_path)]) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith(f"t2t-jax: {tmp_path / FILE} is damaged (")
    assert said.endswith("): restore it from its origin.")


def test_what_is_published_is_only_read(tmp_path, capsys):
    shutil.copy(stored.DEMO / FILE, tmp_path)
    where = ["--store", str(tmp_path)]
    for words in (["table", "table3"], ["list", "runs"]):
        assert main([*words, *where]) == 0
    assert main(["run", "table3", *where, "--cache", str(tmp_path / "cache")]) == 2
    assert "published runs, which are read-only" in capsys.readouterr().err
    for words in (["translate", "table3/base/0"], ["evaluate", "table3-demo/base/0"]):
        assert main([*words, *where]) == 2
        said = capsys.readouterr().err
        assert f"table3-demo/base/0 ({tmp_path / FILE}) was published without its para" in said
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


def test_a_mixture_marks_a_run_by_its_name(home, tmp_path):
    place = shutil.copytree(home, tmp_path / "store")
    (directory,) = (x.runs[0].directory for x in collecting.collect(stored.grid(place, 2))[1:])
    stored.made_by_other_code(directory)
    grid = stored.grid(place, 4)
    mixed = tables.quality(grid, stored.compared(grid, mix=True))
    (note,) = (note for note in mixed.notes if note.startswith("†"))
    assert note.endswith("(table3-demo/A:h=1,d_k=512,d_v=512/0).")


def test_a_name_has_the_changed_fields_behind_the_preset():
    grid = dataclasses.replace(stored.grid(), changes={"steps": 60, "N": 1, "train": "a/file"})
    assert grid.run_name(grid.rows[0], 2) == "table3-demo:steps=60,N=1/base/2"
