"""The notebook works from its first cell to its last."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parents[1] / "experiments" / "tutorial.ipynb"


@pytest.mark.full
def test_the_cells_of_the_notebook_run(tmp_path):
    notebook = json.loads(NOTEBOOK.read_text())
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert not any(cell["outputs"] or cell["execution_count"] for cell in cells)
    code = "\n\n".join("".join(cell["source"]) for cell in cells)
    words, env = [sys.executable, "-c", code], os.environ | {"HOME": str(tmp_path)}
    done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("N 1 (paper: 6)")
    assert "dev perplexity " in done.stdout
    for row in ("base", "distance"):
        assert re.search(rf"^{row} +\[?\d+\.\d+\]? +1 ", done.stdout, re.M), done.stdout
