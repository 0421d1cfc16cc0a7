"""Files and locks of a store that several processes share."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from t2t_jax import files
from t2t_jax.errors import RunError
from t2t_jax.runs import claim


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


def test_a_lock_is_seen_by_who_may_write_and_free_to_who_may_not(tmp_path):
    (tmp_path / "lock").touch()
    assert not claim.is_locked(tmp_path)
    (tmp_path / "lock").unlink()
    (tmp_path / "lock").mkdir()  # which cannot be opened for writing
    assert not claim.is_locked(tmp_path)
