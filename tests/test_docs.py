"""The pages of the documentation are built, and their links have targets."""

import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.full
def test_the_links_of_the_pages_have_targets(tmp_path):
    """The script runs with this Python, in place of one that environment.sh would install."""
    (tmp_path / "docs.sh").write_text((ROOT / "launch" / "docs.sh").read_text())
    (tmp_path / "environment.sh").write_text(f'root="{ROOT}" venv="{sys.prefix}"\n')
    words = ["bash", tmp_path / "docs.sh", site := tmp_path / "site"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    others = re.sub("Warn: Error parsing type annotation.*", "", done.stderr)
    assert "mport" not in others  # a module, or a public name
    whole = {path: path.read_text() for path in site.rglob("*.html")}
    pages = {x: re.sub("<script.*?</script>", "", text, flags=re.S) for x, text in whole.items()}
    ids = {path: re.findall(r'\bid="([^"]+)"', text) for path, text in pages.items()}
    for path, text in pages.items():
        for link in {*re.findall(r'\b(?:href|src)="(?!https?:|data:)([^"]+)"', text)}:
            name, _, heading = unquote(link).partition("#")
            target = (path.parent / name).resolve() if name else path
            assert target.is_file(), f"{path}: {link}"
            # pdoc links to methods of Flax, but leaves them out.
            if not heading.endswith((".init", ".apply")):
                assert not heading or heading in ids[target], f"{path}: {link}"
    assert "how-small-can-an-ablation-be" in ids[site / "index.html"]
    assert pages[site / "experiments" / "README.html"].count('src="data:image/png') > 20
    for topic in (ROOT / "t2t_jax" / "help").glob("*.md"):
        assert "```" not in pages[site / "t2t_jax" / "help" / f"{topic.stem}.html"]
