"""Diagnostic tasks: answers by independent oracles, splits, prompt words, accuracy, training."""

import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t2t_jax import config
from t2t_jax.cli import main
from t2t_jax.config import Config, Data
from t2t_jax.data.cache import as_one, ragged
from t2t_jax.data.corpora import CORPORA, parse_options
from t2t_jax.data.diagnostics import SPLITS, TASKS, generate
from t2t_jax.data.prepare import open_corpus, prepare
from t2t_jax.errors import UsageError
from t2t_jax.evaluation import teacher_forced
from t2t_jax.evaluation.metrics import Outputs, metric_of, metrics_of, score
from t2t_jax.evaluation.predictions import negative_log_likelihood, predict
from t2t_jax.inference.translate import translate_tokens
from t2t_jax.runs.execution import execute
from t2t_jax.study.distances import diagnostic_table
from t2t_jax.study.typeset import as_text
from t2t_jax.terminal import Progress
from t2t_jax.tokens import EOS
from t2t_jax.training.step import loss_targets, shift
from tests.reference.transformer import language_model
from tests.small import make
from tests.toy import options, quiet

V = {"dyck": 10}  # of the task; that of others is 44


def number(word):
    return int(word.lstrip("_wkv"))


def of_recall(example):
    """Answers by a dictionary; also the largest distance in the sequence as one."""
    value_of = dict(zip(example.source[::2], example.source[1::2], strict=True))
    assert len(value_of) == len(set(value_of.values())) == len(example.source) // 2
    asked_for = [word for word in example.target if word[1] == "k"]
    assert sorted(asked_for) == sorted(f"_{key}" for key in value_of)
    target, sequence = [], [*example.source, *example.target]
    for word in example.target:
        if word[0] == "_":
            target.append(word)
            key = word[1:]
        else:
            target.append(value_of[key])
    n, value_at = len(example.source), example.source.index
    gaps = [n + i - value_at(value_of[w[1:]]) for i, w in enumerate(example.target) if w[1] == "k"]
    assert len(sequence) == n + len(target)
    return target, max(gaps)


def of_dyck(example):
    (first,) = example.source
    stack, out, longest = [(first, 0)], [], 0
    for i, word in enumerate(example.target, 1):
        if word[0] == "_":
            assert word[1] == "("
            stack.append((word[1:], i))
            assert len(stack) <= 3
            out.append(word)
        else:
            opening, j = stack.pop()
            longest = max(longest, i - j)
            out.append(opening.replace("(", ")"))
    assert not stack
    return out, longest


ORACLES = {
    "recall": of_recall,
    "copy": lambda example: (example.source, None),
    "reverse": lambda example: ([*reversed(example.source)], None),
    "sort": lambda example: (sorted(example.source, key=number), None),
    "dyck": of_dyck,
}
SMALL = {
    "recall": "length=20,keys=3",
    "copy": "length=7",
    "reverse": "length=7",
    "sort": "length=7",
    "dyck": "length=12,depth=3",
}


def splits(task, pairs=400):
    return generate(task, parse_options(task, SMALL[task]), V.get(task, 44), pairs)


def size(task, example):
    return len(example.source) + len(example.target) * (task in ("recall", "dyck"))


def test_every_task_is_a_corpus_and_has_an_oracle():
    # Other tests may have loaded a study file that declares a task, which has a version.
    shipped = {name for name, x in CORPORA.items() if x.options and not x.version}
    assert set(TASKS) == set(ORACLES) == shipped
    assert {metric_of(name).name for name in TASKS} == {"accuracy"}


@pytest.mark.parametrize("task", TASKS)
def test_answers_are_those_of_an_oracle_and_lengths_are_as_asked(task):
    options = parse_options(task, SMALL[task])
    made, longest = splits(task), options["length"]
    words = {*TASKS[task][1]({**options, "V": V.get(task, 44) - 4})}
    for split, (factor, _) in SPLITS.items():
        for example in made[split]:
            assert ORACLES[task](example) == (example.target, example.distance)
            assert words >= {w.removeprefix("_") for w in (*example.source, *example.target)}
            if task == "recall":  # whose examples have a single length
                assert size(task, example) == factor * longest
            else:
                assert factor * longest / 2 < size(task, example) <= factor * longest


@pytest.mark.parametrize("task", TASKS)
def test_splits_share_no_example_and_are_reproduced(task):
    made = splits(task)
    assert {name: len(split) for name, split in made.items()} == {
        "dev": 500, "test": 1000, "test2x": 500, "test4x": 500, "test8x": 500, "train": 400,
    }  # fmt: skip
    texts = [str(example[:2]) for split in made.values() for example in split]
    assert len(texts) == len(set(texts))
    random.seed(5)  # the global generator has no effect
    again = splits(task, 410)
    assert again["train"][:400] == made["train"]
    assert {**again, "train": 0} == {**made, "train": 0}


QUERIES = {"length": 22, "fewest": 0, "V": 9}


def test_the_places_of_queries_follow_the_power_law():
    """The first of many places, drawn alone, against the probabilities of the paper's code."""
    rng, options = random.Random(0), {**QUERIES, "keys": 1}
    drawn = [TASKS["recall"][0](rng, options).target for _ in range(4000)]
    places = [next(i // 2 for i, w in enumerate(target) if w != "_.") for target in drawn]
    p = np.arange(1, 11) ** (0.01 - 1)
    counts = np.bincount(places, minlength=10)
    chi2 = ((counts - 4000 * p / p.sum()) ** 2 / (4000 * p / p.sum())).sum()
    assert chi2 < 27.9  # p = 0.001 of 9 degrees of freedom


def test_the_order_of_queries_is_independent_of_that_of_pairs():
    rng, options, first = random.Random(0), {"length": 40, "keys": 8, "fewest": 0, "V": 40}, 0
    for _ in range(1000):
        source, target, _ = TASKS["recall"][0](rng, options)
        first += target.index(f"_{source[0]}") < target.index(f"_{source[-2]}")
    assert 450 < first < 550


def test_training_alone_has_fewer_keys():
    made = generate("recall", parse_options("recall", "keys=5,fewest=2"), 44, 100)
    keys = {split: {len(e.source) // 2 for e in examples} for split, examples in made.items()}
    assert keys.pop("train") == {2, 3, 4, 5}
    assert set.union(*keys.values()) == {5}
    assert {size("recall", example) for example in made["train"]} == {32}


@pytest.mark.parametrize(
    ("corpus", "options", "expected"),
    [
        ("copy", "size=3", "corpus copy has no option 'size'"),
        ("copy", "length=0", "length in task_options=length=0 must be a whole number of at least"),
        ("recall", "fewest=-1", "fewest in .* must be a whole number of at least 0"),
        ("copy", "length=x", "must be a whole number of at least 1"),
        (
            "grammar",
            "length=3",
            "corpus grammar has no option 'length' in task_options=length=3: it has none",
        ),
    ],
)
def test_options_that_a_task_lacks_are_refused_with_the_config(corpus, options, expected):
    with pytest.raises(UsageError, match=expected):
        config.replace(Config(), corpus=corpus, task_options=options)


@pytest.mark.parametrize(
    ("task", "options", "size", "expected"),
    [
        ("copy", "", 5, "vocabulary must be at least 6, not 5"),
        ("recall", "length=31", 44, "length must be even"),
        ("recall", "length=30,keys=8", 44, "length must be at least 4 keys, 32"),
        ("recall", "keys=2,fewest=3", 44, "fewest must be at most keys, which is 2"),
        ("recall", "keys=8", 20, "8 keys need a vocabulary of at least 21"),
        ("dyck", "", 11, "vocabulary must be 4 and two for each type"),
        ("dyck", "length=10", 12, "length must be a multiple of 4"),
        ("copy", "length=2", 8, "too few different examples"),
    ],
)
def test_options_that_do_not_fit_are_refused(task, options, size, expected):
    with pytest.raises(UsageError, match=expected):
        generate(task, parse_options(task, options), size)


def test_other_settings_without_an_answer_are_refused(tmp_path):
    with pytest.raises(UsageError, match="vocabulary=4 leaves corpus dyck without words"):
        prepare(Data(corpus="dyck", vocabulary=4), tmp_path, quiet)
    with pytest.raises(UsageError, match="predicts masked words"):
        config.replace(Config(), corpus="copy", architecture="encoder")


@pytest.fixture(scope="module")
def recall(tmp_path_factory):
    """The prepared corpus of recall."""
    data = Data(corpus="recall", task_options=SMALL["recall"], vocabulary=44, pairs=30)
    return open_corpus(data, tmp_path_factory.mktemp("cache"), quiet)


def test_a_prepared_task_has_whole_words_and_marks_given_ones(recall):
    words = recall.vocabulary.pieces(range(recall.vocabulary.size))
    assert len(recall.splits["train"].source) == 30
    for name, split in recall.splits.items():
        for i, (source, target, distance) in enumerate(splits("recall", 30)[name][:20]):
            assert [words[x].removeprefix("▁") for x in split.source[i]] == [*source, "</s>"]
            pairs = zip(split.target[i], [*target, "_</s>"], strict=True)
            assert all((x < 0) == (word[0] == "_") for x, word in pairs)
            spoken = [words[abs(x)].removeprefix("▁") for x in split.target[i]]
            assert spoken == [*(w.removeprefix("_") for w in target), "</s>"]
            if name != "train":
                assert split.references[i].split() == target
                assert split.extras[i] == {"dependency": distance}


def test_a_language_model_reads_the_source_as_given(recall):
    split = recall.splits["dev"]
    joined = as_one(split)
    for i in range(len(split.source)):
        np.testing.assert_array_equal(joined.target[i], [*-split.source[i], *split.target[i]])
    assert joined.references == split.references


def test_given_tokens_are_read_but_do_not_count():
    """The likelihood of the tokens with a loss alone, in plain numpy."""
    model, params = make(architecture="decoder")
    exact = jax.tree.map(lambda x: np.asarray(x, np.float64), params)
    rows = [[-5, -9, -2, 23, -11, 7, 2], [-6, -2, 14, -4, -2]]
    target = jnp.array([row + [0] * (9 - len(row)) for row in rows], jnp.int32)
    np.testing.assert_array_equal(shift(target)[0], [1, 5, 9, 2, 23, 11, 7, 0, 0])
    np.testing.assert_array_equal(loss_targets(target)[0], [0, 0, 0, 23, 0, 7, 2, 0, 0])
    batch = {"source": target, "target": target}
    nll, tokens = negative_log_likelihood(model, params, batch)
    np.testing.assert_array_equal(tokens, [3, 1])
    for row, total in zip(rows, nll, strict=True):
        z = language_model(exact, None, [1, *np.abs(row[:-1])], causal=True)
        terms = [np.logaddexp.reduce(z[i]) - z[i][x] for i, x in enumerate(row) if x > 0]
        np.testing.assert_allclose(total, sum(terms), 1e-5)


BATCHES = Data(batch_tokens=64, num_buckets=2)


class Words:
    """A vocabulary whose word i is `wi`."""

    size = 29

    def pieces(self, ids):
        return ["</s>" if i == EOS else f"▁w{i}" for i in ids]


class Sentences:
    """A split in memory."""

    extras, documents = (), None

    def __init__(self, source, target):
        self.source, self.target = ragged(source), ragged(target)
        self.references = [
            " ".join("_" * (x < 0) + f"w{abs(x)}" for x in row[:-1]) for row in target
        ]


@pytest.mark.full
def test_a_whole_prediction_is_right_where_greedy_decoding_is():
    """Targets are outputs of greedy decoding, some of which are then changed in a word."""
    model, params = make(N=1, norm_placement="pre")
    params = jax.tree.map(lambda x: x - 0.2 if x.ndim == 1 else 2 * (x - 0.2), params)
    params["embedding"] = jax.tree.map(lambda x: 0.1 * x, params["embedding"])
    rng = np.random.default_rng(1)
    sources = [[*rng.integers(4, 29, n), EOS] for n in (3, 1, 5, 8, 2, 7, 4, 6)]
    decoding = config.Decoding(beam=1, max_extra=4)
    greedy = translate_tokens(model, params, sources, decoding, warn=str)
    right = [[*tokens[:4], -EOS] for tokens in greedy]
    assert len({*map(tuple, right)}) > 3  # the outputs depend on the sources
    wrong = [[*row[:-2], 4 + (row[-2] - 3) % 25, -EOS] for row in right]
    split = Sentences(sources * 2, right + wrong)
    predicted = predict(model, params, split, Words(), BATCHES)
    exact = [x == y for x, y in zip(predicted, split.references, strict=True)]
    assert exact == [True] * len(right) + [False] * len(wrong)


def test_predictions_are_the_largest_logits_of_the_own_target():
    model, params = make(architecture="decoder")
    exact = jax.tree.map(lambda x: np.asarray(x, np.float64), params)
    source, target = [[5, 9, 3, 2], [6, 2]], [[-7, 23, -11, 8, -2], [14, 4, 17, 2]]
    split = Sentences(source, target)
    joined = [[-x for x in s] + t for s, t in zip(source, target, strict=True)]
    split.target = ragged(joined)
    for text, reference, row in zip(
        predict(model, params, split, Words(), BATCHES), split.references, joined, strict=True
    ):
        z = language_model(exact, None, [1, *np.abs(row[:-1])], causal=True)
        best = Words().pieces(z.argmax(-1))
        own = len(reference.split()) + 1
        words = [
            r if r[0] == "_" else p.removeprefix("▁")
            for p, r in zip(best[-own:], reference.split(), strict=False)
        ]
        extra = [best[-1].removeprefix("▁")] if row[-1] > 0 and best[-1] != "</s>" else []
        assert text.split() == words + extra


def test_accuracy_counts_the_words_that_are_asked_for():
    references = ["_k1 v1 _. _. _k2 v2", "w1 w2 w3", "w1", "w2"]
    predicted = ["_k1 v1 _. _. _k2 v3", "w1 w2 w3", "w1 w5", "</s>"]
    counts = teacher_forced.sentence_statistics(predicted, references)
    assert counts == [[1, 2, 0, 1], [3, 3, 1, 1], [1, 1, 0, 1], [0, 1, 0, 1]]
    scores, statistics = score(Outputs(predicted, references, [""] * 4), metrics_of("recall"))
    assert {key: x["score"] for key, x in scores.items()} == {"accuracy": 100 * 5 / 7, "exact": 25}
    assert statistics == counts


def test_the_table_has_a_line_for_each_length_and_distance():
    split = Sentences([[5, 2]] * 40, [[7, 9, 2]] * 40)
    split.extras = [{"dependency": 1 + i // 20} for i in range(40)]
    predicted = ["w7 w9"] * 20 + ["w7 w8"] * 10 + ["w4 w8"] * 10
    lines = [
        x.split()
        for x in as_text(diagnostic_table("run.", {"test": (predicted, split)})).splitlines()
    ]
    whole, near, far = lines[5:8]
    assert whole[:4] == ["test", "3", "40", "62.5"]
    assert [near[:3], far[:3]] == [["1", "20", "100.0"], ["2", "20", "25.0"]]
    assert whole[7] == "50.0"  # exact, with an interval of 1.96 standard errors
    np.testing.assert_allclose([float(whole[8][1:]), float(whole[10][:-1])], [34.5, 65.5], atol=3)
    split.extras = [{"topic": "birds"}] * 40  # of a study file, without distances
    assert "62.5" in as_text(diagnostic_table("run.", {"test": (predicted, split)}))


TINY = dict(
    architecture="decoder", N=2, d_model=32, d_ff=32, h=4, d_k=8, d_v=8, norm_placement="pre",
    corpus="copy", task_options="length=4", vocabulary=12, pairs=1000, batch_tokens=800,
    num_buckets=1, steps=200, warmup=40, peak_lr=0.01, schedule="linear", P_drop=0.0, eps_ls=0.0,
    evaluate_every=200,
)  # fmt: skip


@pytest.mark.full
def test_a_tiny_language_model_solves_copy(tmp_path, capsys, monkeypatch):
    c, run, cache = config.replace(Config(), **TINY), tmp_path / "run", tmp_path / "cache"
    dataset = open_corpus(c.data, cache, quiet)
    (result,) = execute([(c, run)], dataset, lambda split: split == "test", Progress())
    assert result["scores"]["test"]["accuracy"]["score"] > 90
    assert [*result["scores"]] == ["test"]
    store = ["--cache", str(cache)]
    assert main(["evaluate", str(run), "--split", "test,test2x", *store]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    score = {line[0]: line[3] for line in lines if line[:1] in (["test"], ["test2x"])}
    assert score["test"] == f"{result['scores']['test']['accuracy']['score']:.1f}"
    assert float(score["test2x"]) < 50
    (tmp_path / "prompt").write_text("w4 w0 w5 w1\n")
    with (tmp_path / "prompt").open() as prompt:  # whose end the model reads, as in training
        monkeypatch.setattr("sys.stdin", prompt)
        greedy = ["generate", str(run), "--temperature", "0", "--tokens", "6", *store[:2]]
        assert main(greedy) == 0
    assert capsys.readouterr().out == "w4 w0 w5 w1 w4 w0 w5 w1\n"
    for flag, value in (("--temperature", "inf"), ("--temperature", "nan"), ("--top-k", "9" * 12)):
        assert main(["generate", str(run), flag, value]) == 2
        assert f"argument {flag}: {value}: give" in capsys.readouterr().err
    for words, expected in (
        (["evaluate", str(run), "--beam", "2", *store], "predicted and not decoded"),
        (["evaluate", str(run), "--split", "test3x", *store], "did you mean 'test"),
        (["translate", str(run)], "does not translate"),
    ):
        assert main(words) == 2
        assert expected in capsys.readouterr().err


def test_a_task_longer_than_the_positions_is_refused(tmp_path, capsys):
    changes = TINY | dict(positions="learned", max_length=8, max_extra=20)
    words = ["train", "base", *options(changes), "--cache", str(tmp_path / "cache")]
    assert main([*words, "--run", str(tmp_path / "run")]) == 2
    assert "test4x has a sentence of 34 subwords" in capsys.readouterr().err
