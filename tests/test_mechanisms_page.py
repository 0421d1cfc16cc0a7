"""The page of all mechanisms is that of the stored results, and its numbers are theirs."""

import json
import lzma
import statistics

import pytest

from experiments import mechanisms

RESULTS = mechanisms.RESULTS


@pytest.fixture(scope="module")
def page():
    cost = json.loads((RESULTS / "bench_attention" / "attention.json").read_text())
    studies = ("attention", "demo"), ("attention_flops", "demo"), ("recall", "diagnostic")
    return mechanisms.table(*(mechanisms.stored(*study) for study in studies), cost)


def runs(folder, row):
    with lzma.open(RESULTS / folder / "runs.jsonl.xz", "rt") as lines:
        found = [json.loads(line) for line in lines]
    return [x for x in found if f"/{row}/" in x["names.txt"]]


def cells(page, row):
    header, _, *lines = (line.strip("|\n").split("|") for line in page.splitlines())
    (found,) = (line for line in lines if line[0].strip() == row)
    return {name.strip(): cell.strip() for name, cell in zip(header, found, strict=True)}


@pytest.mark.full
def test_the_stored_page_is_that_of_the_stored_results(page):
    assert (RESULTS / "mechanisms" / "table.md").read_text() == page


def test_a_line_has_the_numbers_of_its_studies(page):
    line, made = cells(page, "linear"), runs("attention-demo", "linear")
    assert len(made) == 3
    for name, split in (("BLEU", "test"), ("BLEU, longer", "test_long")):
        assert line[name].split()[0] == mean(made, split, "bleu")
    assert line["equal FLOPs"].split()[0] == mean(runs("attention_flops-demo", "linear"))
    assert cells(page, "additive")["equal FLOPs"] == ""
    far = [
        judged
        for run in made
        for _, distance, judged in run["contrastive.statistics.json"]
        if distance >= 5
    ]
    assert float(line["minimal pairs, far"]) == pytest.approx(100 * statistics.mean(far), abs=0.05)
    assert line["roles"] == "all"


def mean(runs, split="test", metric="bleu"):
    return (
        f"{statistics.mean(x['result.json']['scores'][split][metric]['score'] for x in runs):.1f}"
    )


@pytest.mark.parametrize(
    ("row", "stored", "column"),
    [
        ("linear", "linear, d_k 8", "recall, d_k 8"),
        ("linear", "linear, d_k 32", "d_k 32"),
        ("scaled dot product", "softmax, d_k 8", "recall, d_k 8"),
    ],
)
def test_recall_is_that_of_the_mechanism(page, row, stored, column):
    made = runs("recall-diagnostic", stored)
    assert len(made) == 3
    assert cells(page, row)[column].split()[0] == mean(made, metric="accuracy")


def test_a_state_that_keeps_all_keys_grows_and_a_memory_does_not(page):
    name = "state at 2,048 (KiB)"
    assert cells(page, "scaled dot product")[name] == f"{2 * 2048 * 8 * 64 * 4 // 1024:,}"
    assert cells(page, "delta")[name] == f"{8 * 64 * 64 * 4 // 1024:,}"
    assert cells(page, "nystrom")[name] == ""
