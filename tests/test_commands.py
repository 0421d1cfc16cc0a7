"""The commands as a person uses them: a fresh store, a killed run, bad input, a pipe."""

import gzip
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import pytest
import sentencepiece
from sacrebleu.metrics import TER

from t2t_jax import config, files
from t2t_jax.cli import main
from t2t_jax.commands.shared import cache_programs
from t2t_jax.inference.translate import translate
from t2t_jax.runs import execution, store
from t2t_jax.runs.loading import load
from tests import stored, toy
from tests.eight import EIGHT

STEPS, EVERY = 600, 200


@pytest.fixture(scope="module")
def words(corpus, tmp_path_factory):
    """`train` with everything but the run's directory."""
    cache = tmp_path_factory.mktemp("cache")
    return toy.train(corpus, cache, steps=STEPS, evaluate_every=EVERY)


@pytest.fixture(scope="module")
def run(words, tmp_path_factory):
    """A finished run, which has learnt the toy well enough to be wrong where decoding is."""
    directory = tmp_path_factory.mktemp("runs") / "whole"
    process = start(words, directory)
    output = process.communicate(timeout=200)[0].decode()
    assert process.returncode == 0, output
    (directory / "printed.txt").write_text(output)
    return directory


def command(words, **options):
    python = [sys.executable, "-m", "t2t_jax.cli"]
    return subprocess.run([*python, *map(str, words)], capture_output=True, timeout=200, **options)


def test_a_run_keeps_what_it_found(run):
    result = json.loads((run / "result.json").read_text())
    assert result["steps"] == STEPS
    assert result["averaged_steps"] == [STEPS - EVERY, STEPS]
    assert len((run / "test.de").read_text().splitlines()) == 13
    assert "tok:13a" in result["scores"]["test"]["bleu"]["signature"]
    assert result["scores"]["test"]["bleu"]["score"] > 50
    assert result["scoring"]["test"]["cut"] == 0
    assert result["environment"]["device"]
    evaluated = [r["step"] for r in toy.records(run) if "dev_perplexity" in r]
    assert evaluated == [EVERY, 2 * EVERY, STEPS]
    assert not list(run.rglob("*.part"))
    printed = (run / "printed.txt").read_text()
    assert "dev perplexity" in printed
    assert not {"\r", "\x1b"} & {*printed}  # into a pipe, it prints plain lines


def test_a_finished_run_is_not_run_again(copy, words, call):
    before = (copy / "result.json").stat().st_mtime_ns
    assert "finished" in call(*words, "--run", copy).err
    assert (copy / "result.json").stat().st_mtime_ns == before
    stored.made_by_other_code(copy)
    assert "today's code computes another step" in call(*words, "--run", copy).err
    (copy / "programs.json").unlink(missing_ok=True)  # `train` compares its own programs
    assert "is finished, but today's code computes another step" in call(*words, "--run", copy).err
    files.write_json(copy / "environment.json", store.read_result(copy)["environment"])
    (copy / "result.json").unlink()
    assert "is continued, but today's code computes" in call(*words, "--run", copy).err
    assert store.read_result(copy)["environment"]["programs"]["step"].startswith(
        "0" * 12 + ", then"
    )


OTHERS = {
    "recurrent": dict(
        attention_feeding="output", cross_attention="additive", encoder_direction="both"
    ),
    "convolutional": dict(positions="learned", cross_attention="dot_product", N=2),
}


@pytest.mark.full
@pytest.mark.parametrize("architecture", OTHERS)
def test_other_architectures_learn_and_translate(architecture, corpus, words, tmp_path, capsys):
    changes = {"architecture": architecture, "P_drop": 0.0} | OTHERS[architecture]
    figure_1 = {f"--{name}" for name in ("d_ff", "h", "d_k", "d_v")}
    given = dict(zip(words[2::2], words[3::2], strict=True))
    options = {n: x for n, x in given.items() if n not in figure_1}
    options |= {f"--{name}": str(x) for name, x in changes.items()}
    directory = tmp_path / "run"
    said = ["train", "base", *(w for pair in options.items() for w in pair)]
    assert main([*said, "--run", str(directory)]) == 0
    result = json.loads((directory / "result.json").read_text())
    assert result["scores"]["test"]["bleu"]["score"] > 50
    assert main(["evaluate", str(directory), "--cache", options["--cache"]]) == 0
    score = result["scores"]["test"]["bleu"]["score"]
    assert f"{score:6.2f}  BLEU  [" in capsys.readouterr().out


@pytest.mark.full
def test_a_language_model_has_a_perplexity_and_no_translations(words, tmp_path, call, refused):
    directory = tmp_path / "run"
    call(*words, "--architecture", "encoder", "--run", directory)
    result = json.loads((directory / "result.json").read_text())
    assert result["scores"] == {}
    assert 1 < result["dev_perplexity"] < 10
    refused(["evaluate", directory], "language model")


def test_translate_gives_a_line_for_each_line_in_order(run, said):
    text = "one two\n\ntwo\x0bthree\n   \nfive four three two\none two"
    lines = said(run, text).out.split("\n")
    assert len(lines) == 7
    assert lines[1] == lines[3] == lines[6] == ""
    assert lines[0] == lines[5] == "eins zwei"
    assert said(run, "five four three two\n").out.split("\n")[0] == lines[4] != ""
    assert said(run, "") == ("", "")


def test_translate_streams_what_a_pipe_brings(run):
    """The first translations come before the last lines are there, and line numbers go on."""
    words = [sys.executable, "-m", "t2t_jax.cli", "translate", str(run)]
    pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with subprocess.Popen(words, **pipes) as process:
        process.stdin.write(b"\xef\xbb\xbfone two\ntwo one\nfive f")
        process.stdin.flush()
        assert [process.stdout.readline() for _ in range(2)] == [b"eins zwei\n", b"zwei eins\n"]
        out, err = process.communicate(b"our\n\n" + b"one " * 100 + b"\ntwo", timeout=100)
    lines = out.decode().split("\n")
    assert (lines[0].split()[-1], lines[1], lines[3:]) == ("vier", "", ["zwei", ""])
    assert "line 5 has 101 subwords" in err.decode()


@pytest.fixture
def said(call, monkeypatch, tmp_path):
    """A function that translates a text in this process; it returns output and errors."""

    def translated(run, text):
        (tmp_path / "input").write_text(text)
        with (tmp_path / "input").open() as file:
            monkeypatch.setattr(sys, "stdin", file)
            return call("translate", run)

    return translated


def test_translate_warns_of_a_line_longer_than_any_in_training(run, said):
    """One of 1,400 characters, where training sentences have at most 20 subwords."""
    out, err = said(run, "one two\n" + "one two three " * 100)
    assert out.startswith("eins zwei\n")
    warning, *others = err.splitlines()
    assert re.match(r"line 2 has [3-9]\d\d subwords", warning)
    assert "at most 20" in warning
    # Whether this translation ends by itself depends on the rounding of a version of JAX.
    assert not others or (len(others) == 1 and "translations are cut at" in others[0])


def test_an_exported_run_translates_as_it_did(run, tmp_path, call, refused):
    ctranslate2, out = pytest.importorskip("ctranslate2"), tmp_path / "out"
    assert call("export", run, "--out", out).out == f"{out}\n"
    c, model, params, vocabulary = load(run)
    lines = ["one two", "five four three two", "one one three"]
    greedy = config.replace(c, beam=1).decoding
    ours = translate(model, params, lines, vocabulary, greedy)
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(out / "vocabulary.model"))
    translator = ctranslate2.Translator(str(out), compute_type="float32")
    found = translator.translate_batch(pieces.encode(lines, out_type=str), beam_size=1)
    assert [pieces.decode(x.hypotheses[0]) for x in found] == ours
    assert len(set(ours)) == 3
    refused(["export", run, "--out", out], out, "is not empty")


def test_evaluate_agrees_with_the_run(run, corpus, tmp_path, call, refused):
    score = json.loads((run / "result.json").read_text())["scores"]["test"]["bleu"]["score"]
    cache = "--cache", run.parent / "cache"
    sources, references = corpus / "test.en", corpus / "test.de"
    zipped, dos = tmp_path / "test.en.gz", tmp_path / "test.de"
    zipped.write_bytes(gzip.compress(sources.read_bytes()))
    dos.write_bytes(b"\xef\xbb\xbf" + references.read_bytes().replace(b"\n", b"\r\n"))
    for more in (cache, ("--sources", zipped, "--references", dos)):
        assert f"{score:6.2f}  BLEU  [" in call("evaluate", run, *more).out
    lines = [(d / "test.de").read_text().splitlines() for d in (run, corpus)]
    ter = TER().corpus_score(lines[0], [lines[1]]).score
    printed = call("evaluate", run, *cache, "--metrics", "TER,chrF2").out
    assert f"{ter:6.2f}  TER  [" in printed
    assert printed.count("chrF2") == 1
    files = ["--sources", sources, "--references", references]
    refused(["evaluate", run, *files[:3], corpus / "dev.de"], "has 13 lines and", "has 20")
    refused(["evaluate", run, *files, "--metrics", "PPL"], "there is no metric 'PPL' here")
    refused(["evaluate", run, *files, "--split", "dev"], "--split names a split")
    refused(["evaluate", run, "--split", "tset"], "tset", "'test'")


def start(words, directory):
    return subprocess.Popen(
        [sys.executable, "-m", "t2t_jax.cli", *words, "--run", str(directory)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )


def wait_for_step(processes, directory, step):
    """Until a checkpoint of `step` or later is complete; kills the processes after 200 seconds.

    That of `step` itself is deleted as soon as later ones exist.
    """
    last = time.monotonic() + 200
    while max(saved(directory), default=0) < step:
        if time.monotonic() > last or any(p.poll() is not None for p in processes):
            for p in processes:
                p.kill()
            printed = "\n".join(p.communicate()[0].decode() for p in processes)
            raise AssertionError(f"no checkpoint of step {step}:\n{printed}")
        time.sleep(0.05)


def saved(directory):
    """The steps of the checkpoints that are complete."""
    return {int(p.name) for p in (directory / "checkpoints").glob("*") if p.name.isdigit()}


def same_end(directory, other):
    assert toy.records(directory)[-1] == toy.records(other)[-1]
    assert "dev_perplexity" in toy.records(other)[-1]
    read = [json.loads((d / "result.json").read_text()) for d in (directory, other)]
    for name in ("dev_perplexity", "averaged_steps", "scores"):
        assert read[0][name] == read[1][name]


@pytest.mark.full
def test_a_stopped_run_ends_as_one_left_alone(words, tmp_path):
    """Stopped twice, each time between two evaluations."""
    directory, other = tmp_path / "run", tmp_path / "other"
    longer = [*words, "--steps", "100000", "--schedule", "inverse_sqrt"]
    wanted = EVERY
    for number in (signal.SIGKILL, signal.SIGINT):
        process = start(longer, directory)
        wait_for_step([process], directory, wanted)
        process.send_signal(number)
        output = process.communicate(timeout=100)[0].decode()
        if number != signal.SIGKILL:
            assert process.returncode == 75, output
            stopped = int(re.search(r"stopped at step ([\d,]+)", output)[1].replace(",", ""))
            assert stopped in saved(directory)
        wanted = max(saved(directory)) // EVERY * EVERY + EVERY
    c = json.loads((directory / "config.json").read_text()) | {"steps": wanted}
    (directory / "config.json").write_text(json.dumps(c))  # as if asked for in the first place
    for path in (directory, other):
        done = command([*longer, "--steps", wanted, "--run", path])
        assert done.returncode == 0, done.stderr.decode()
    same_end(directory, other)


@pytest.mark.full
def test_training_on_eight_devices(words, tmp_path):
    options = dict(capture_output=True, timeout=200, env=os.environ | EIGHT)
    words = [sys.executable, "-m", "t2t_jax.cli", *words, "--run", str(tmp_path / "run")]
    words += ["--accumulate", "2", "--batch_tokens", "400", "--mesh", "data=4,tensor=2"]
    words += ["--steps", "4", "--evaluate_every", "4"]
    done = subprocess.run(words, **options)
    assert done.returncode == 0, done.stderr.decode()
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["environment"]["device"].startswith("8 x")
    assert result["mesh"] == "data=4,tensor=2"
    assert result["kernels"] == "plain"
    assert "bleu" in result["scores"]["test"]


@pytest.mark.full
def test_a_diverged_run_stops_and_leaves_the_last_good_checkpoint(copy, words, refused):
    """A finished run that is asked for more steps, at a rate that no float32 survives."""
    unfinished(copy, steps=STEPS + 50, peak_lr=1e30)
    more = ["--steps", STEPS + 50, "--peak_lr", "1e30", "--run", copy]
    refused([*words, *more], f"the checkpoint of step {STEPS} is good", "peak_lr", code=1)
    assert max(saved(copy)) == STEPS
    assert not (copy / "result.json").exists()


def test_bad_words_are_refused(tmp_path, refused, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the folder of a user may have a store
    refused(["train", "gramar"], "gramar", "'grammar'")
    refused(["train", "grammar", "--h", "x"], "--h", "'x'")
    refused(["train", "grammar", "--norm_placement", "psot"], "norm_placement", "'post'")
    refused(["trian"], "trian")
    refused(["translate", "nowhere"], "'nowhere' is neither a directory nor", "--store")
    refused(["evaluate", "nowhere", "--sources", "a"], "--references")


def test_bad_data_is_refused_and_nothing_is_left(words, corpus, tmp_path, refused):
    train = [*words, "--run", tmp_path / "run"]
    refused([*train, "--dev", tmp_path / "gone"], tmp_path / "gone.en")
    for language in ("en", "de"):
        shutil.copy(corpus / f"dev.{language}", tmp_path)
    with (tmp_path / "dev.de").open("a") as file:
        file.write("eins\n")
    refused([*train, "--dev", tmp_path / "dev"], "dev.en", "20", "21")
    refused([*train, "--accumulate", "64"], "batch_tokens", "64")
    assert not (tmp_path / "run").exists()


@pytest.fixture
def copy(run, tmp_path):
    return Path(shutil.copytree(run, tmp_path / "copy"))


def change_config(directory, **changes):
    path = directory / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def unfinished(directory, **changes):
    """Turns a copy of the finished run into a run of another config that has only checkpoints."""
    shutil.rmtree(directory / "final")
    (directory / "result.json").unlink()
    change_config(directory, **changes)


@pytest.mark.parametrize("done", [True, pytest.param(False, marks=pytest.mark.full)])
def test_a_checkpoint_of_another_model_is_refused(done, copy, words, refused):
    if not done:
        unfinished(copy, d_ff=24)
        refused([*words, "--d_ff", "24", "--run", copy], copy / "checkpoints", "W_1")
    change_config(copy, d_ff=24)
    refused(["translate", copy], copy, "W_1", "20", "24")
    change_config(copy, d_ff=20, N=2)
    refused(["translate", copy], copy, "coder_1", "absent")


def test_a_damaged_or_foreign_directory_is_refused(copy, words, refused):
    refused([*words, "--run", copy, "--N", "2"], copy, "N 1 there and 2 here", "--run")
    with toy.held(copy):
        refused([*words, "--run", copy], copy, "another process")
    model = copy / "vocabulary.model"
    original = model.read_bytes()
    model.write_bytes(original[:-1] + b"\x01")
    refused(["translate", copy], copy, "vocabulary.model")
    model.unlink()
    refused(["translate", copy], copy, "has no vocabulary.model")
    model.write_bytes(original)
    (copy / "final" / "params" / "_METADATA").unlink()
    refused(["translate", copy], copy / "final", "_METADATA is missing")
    (copy / "final" / "sha256.json").write_text("{")
    refused(["translate", copy], copy / "final", "sha256.json")
    shutil.rmtree(copy / "final")
    for others in (["translate", copy], ["export", copy], ["attend", copy, "one"]):
        refused(others, "is finished but has no parameters (final/)")
    shutil.rmtree(copy / "checkpoints")
    (copy / "result.json").unlink()
    refused(["translate", copy], copy, "no checkpoint")
    change_config(copy, d_modle=3)
    refused(["translate", copy], "config.json", "d_modle", "'d_model'")
    (copy / "config.json").write_text("{")
    refused(["translate", copy], "config.json", "JSON")


@pytest.mark.full
def test_a_damaged_checkpoint_is_set_aside(run, copy, words, refused):
    """The run goes on from the one before, and ends as if nothing had been."""
    unfinished(copy)
    last = copy / "checkpoints" / str(STEPS)
    data = max((last / "params").rglob("*"), key=lambda p: p.stat().st_size * p.is_file())
    data.write_bytes(data.read_bytes()[:-1] + bytes([data.read_bytes()[-1] ^ 1]))
    refused(["translate", copy], last, data.name, "damaged")
    done = command([*words, "--run", copy])  # compiled as the run was
    said = done.stderr.decode()
    assert done.returncode == 0, said
    assert f"checkpoint of step {STEPS} is damaged ({data.relative_to(last)} is changed)" in said
    assert f"resuming from step {STEPS - EVERY}" in said
    assert (copy / f"damaged-{STEPS}").is_dir()
    assert (copy / "test.de").read_bytes() == (run / "test.de").read_bytes()
    same_end(copy, run)


@pytest.mark.full
def test_more_output_than_learned_positions_is_cut_and_said(words, tmp_path, capsys):
    options = ["--positions", "learned", "--max_extra", "3", "--steps", "2"]
    assert main([*words, *options, "--run", str(tmp_path / "run")]) == 0
    text = "one two three " * 40
    done = command(["translate", tmp_path / "run", "--max_extra", "200"], input=text.encode())
    assert done.returncode == 0, done.stderr.decode()
    assert b"23 positions" in done.stderr


@pytest.mark.full
def test_cut_outputs_are_counted_and_long_targets_raise_the_limit(corpus, tmp_path, call):
    for path in corpus.glob("*.*"):
        words = [line.split()[0] for line in path.read_text().splitlines()]
        more = " eins" * 60 if path.suffix == ".de" else ""
        (tmp_path / path.name).write_text("".join(f"{word}{more}\n" for word in words))
    run, small = tmp_path / "run", dict(steps=1, evaluate_every=1, average=1, d_model=4, beam=1)
    words = toy.train(tmp_path, tmp_path / "cache", max_length=80, **small)
    said = call(*words, "--run", run).err
    c, _, _, vocabulary = load(run)
    texts = [(tmp_path / f"train.{x}").read_text().splitlines() for x in ("en", "de")]
    source, target = ([len(ids) for ids in vocabulary.encode(lines)] for lines in texts)
    limit = max(t - s for s, t in zip(source, target, strict=True)) + 1
    assert c.decoding.max_extra == limit >= 60
    cut = json.loads((run / "result.json").read_text())["scoring"]["test"]["cut"]
    assert re.search(rf"\n{cut} lines \(.*\) of 13: .* cut at {limit} subwords", said)


def test_an_unfinished_run_says_which_step_is_used_and_is_not_exported(copy, said, call, refused):
    unfinished(copy)
    last = STEPS - EVERY
    for step in saved(copy) - set(range(last + 1)):
        shutil.rmtree(copy / "checkpoints" / str(step))
    place = f"step {last} of {STEPS}"
    used = f"{copy} is not finished ({place}): its newest checkpoint is used."
    (copy / "a").write_text("one two\n")
    pair = "--sources", copy / "a", "--references", copy / "a"
    attend = "attend", copy, "one two", "--out", copy, "--cache", copy.parent / "cache"
    for words in (("evaluate", copy, *pair), attend):
        assert used in call(*words).err.splitlines()
    assert said(copy, "one two\n")[1].splitlines() == [used]
    refused(["export", copy, "--out", copy / "out"], copy, "not finished", place)
    assert not (copy / "out").exists()


def test_programs_are_kept_in_the_cache_or_where_the_environment_says(tmp_path, monkeypatch):
    kept = []
    monkeypatch.setattr(jax.config, "update", lambda *changed: kept.append(changed))
    cache_programs(tmp_path)
    assert kept == []  # the environment of tests names a place
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR")
    cache_programs(tmp_path)
    assert ("jax_compilation_cache_dir", str(tmp_path / "programs")) in kept


@pytest.mark.parametrize(
    ("what", "listed"),
    [
        ("recipes", "multi30k_tiny"),
        ("mechanisms", "scaled_dot_product"),
        ("fields", "P_drop 0.1"),
        ("presets", "schedule linear (paper: inverse_sqrt)"),
    ],
)
def test_lists(what, listed, call):
    assert listed in " ".join(call("list", what).out.split())


@pytest.mark.full
def test_a_model_that_is_too_large_leaves_its_directory_free(words, tmp_path, refused, call):
    run = [*words, "--run", str(tmp_path / "run"), "--steps", "2", "--evaluate_every", "2"]
    refused([*run, "--d_model", "1000000000"], "too large for the device", code=1)

    def fail(*_):
        raise RuntimeError("Out of memory allocating 9 bytes")

    with pytest.MonkeyPatch.context() as m:  # after the directory was claimed
        m.setattr(execution, "_train", fail)
        refused([*run, "--d_ff", "24"], "too large for the device", code=1)
    assert json.loads((tmp_path / "run" / "config.json").read_text())["d_ff"] == 24
    call(*run)
    refused([*run, "--d_ff", "24"], "holds a run of another config")
