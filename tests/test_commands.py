"""The commands as a person uses them: a fresh store, a killed run, bad input, a pipe."""

import gzip
import io
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

from t2t_jax import config
from t2t_jax.cli import main
from t2t_jax.commands.shared import cache_programs
from t2t_jax.config import Config
from t2t_jax.inference.translate import translate
from t2t_jax.recipes import RECIPES
from t2t_jax.runs.loading import load
from t2t_jax.study.presets import PRESETS, shrink
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
    assert result["environment"]["device"]
    evaluated = [r["step"] for r in toy.records(run) if "dev_perplexity" in r]
    assert evaluated == [EVERY, 2 * EVERY, STEPS]
    assert not list(run.rglob("*.part"))


def test_a_finished_run_is_not_run_again(run, words, capsys):
    before = (run / "result.json").stat().st_mtime_ns
    assert main([*words, "--run", str(run)]) == 0
    assert (run / "result.json").stat().st_mtime_ns == before
    assert "finished" in capsys.readouterr().err


def test_a_finished_run_of_other_code_is_said_to_be_one(copy, words, capsys):
    stored.made_by_other_code(copy)
    assert main([*words, "--run", str(copy)]) == 0
    said = "is finished, but today's code computes another step; remove it"
    assert said in capsys.readouterr().err


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
def test_a_language_model_has_a_perplexity_and_no_translations(words, tmp_path, capsys):
    directory = tmp_path / "run"
    assert main([*words, "--architecture", "encoder", "--run", str(directory)]) == 0
    result = json.loads((directory / "result.json").read_text())
    assert result["scores"] == {}
    assert 1 < result["dev_perplexity"] < 10
    assert main(["evaluate", str(directory)]) == 2
    assert "language model" in capsys.readouterr().err


def test_translate_gives_a_line_for_each_line_in_order(run, said):
    text = "one two\n\ntwo\x0bthree\n   \nfive four three two\none two"
    done = command(["translate", run], input=text.encode())
    assert done.returncode == 0, done.stderr.decode()
    lines = done.stdout.decode().split("\n")
    assert len(lines) == 7
    assert lines[1] == lines[3] == lines[6] == ""
    assert lines[0] == lines[5] == "eins zwei"
    assert said(run, "five four three two\n")[0].split("\n")[0] == lines[4] != ""
    assert said(run, "") == ("", "")


@pytest.fixture
def said(monkeypatch, capsysbinary):
    """A function that translates a text in this process; it returns output and errors."""

    def translated(run, text):
        capsysbinary.readouterr()
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        assert main(["translate", str(run)]) == 0
        out, err = capsysbinary.readouterr()
        return out.decode(), err.decode()

    return translated


def test_translate_warns_of_a_line_longer_than_any_in_training(run, said):
    """One of 1,400 characters, where training sentences have at most 20 subwords."""
    out, err = said(run, "one two\n" + "one two three " * 100)
    assert out.startswith("eins zwei\n")
    (warning,) = err.splitlines()
    assert re.match(r"line 2 has [3-9]\d\d subwords", warning)
    assert "at most 20" in warning


def test_an_exported_run_translates_as_it_did(run, tmp_path, capsys):
    ctranslate2, out = pytest.importorskip("ctranslate2"), tmp_path / "out"
    assert main(["export", str(run), "--out", str(out)]) == 0
    assert capsys.readouterr().out == f"{out}\n"
    c, model, params, vocabulary = load(run)
    lines = ["one two", "five four three two", "one one three"]
    greedy = config.replace(c, beam=1).decoding
    ours = translate(model, params, lines, vocabulary, greedy, longest=model.limit)
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(out / "vocabulary.model"))
    translator = ctranslate2.Translator(str(out), compute_type="float32")
    found = translator.translate_batch(pieces.encode(lines, out_type=str), beam_size=1)
    assert [pieces.decode(x.hypotheses[0]) for x in found] == ours
    assert len(set(ours)) == 3
    refused(["export", run, "--out", out], capsys, out, "is not empty")


def test_evaluate_agrees_with_the_run(run, corpus, tmp_path, capsys):
    score = json.loads((run / "result.json").read_text())["scores"]["test"]["bleu"]["score"]
    cache = run.parent / "cache"
    assert main(["evaluate", str(run), "--cache", str(cache)]) == 0
    assert f"{score:6.2f}  BLEU  [" in capsys.readouterr().out
    files = ["--sources", str(corpus / "test.en"), "--references", str(corpus / "test.de")]
    assert main(["evaluate", str(run), *files]) == 0
    assert f"{score:6.2f}  BLEU  [" in capsys.readouterr().out
    lines = [(d / "test.de").read_text().splitlines() for d in (run, corpus)]
    ter = TER().corpus_score(lines[0], [lines[1]]).score
    assert main(["evaluate", str(run), "--cache", str(cache), "--metrics", "TER,chrF2"]) == 0
    printed = capsys.readouterr().out
    assert f"{ter:6.2f}  TER  [" in printed
    assert printed.count("chrF2") == 1
    refused(["evaluate", run, *files, "--metrics", "PPL"], capsys, "there is no metric 'PPL' here")
    refused(["evaluate", run, *files, "--split", "dev"], capsys, "--split names a split")
    dos = tmp_path / "test.de"
    dos.write_bytes(b"\xef\xbb\xbf" + (corpus / "test.de").read_bytes().replace(b"\n", b"\r\n"))
    assert main(["evaluate", str(run), *files[:3], str(dos), "--metrics", "exact"]) == 0
    exact = capsys.readouterr().out
    assert main(["evaluate", str(run), *files, "--metrics", "exact"]) == 0
    assert capsys.readouterr().out == exact
    files[1] = str(tmp_path / "test.en.gz")
    Path(files[1]).write_bytes(gzip.compress((corpus / "test.en").read_bytes()))
    assert main(["evaluate", str(run), *files]) == 0
    assert f"{score:6.2f}  BLEU  [" in capsys.readouterr().out


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


def test_a_killed_run_ends_as_one_left_alone(run, words, tmp_path):
    process = start(words, tmp_path / "run")
    wait_for_step([process], tmp_path / "run", EVERY)
    process.kill()
    process.communicate(timeout=100)
    assert not (tmp_path / "run" / "result.json").exists()
    done = command([*words, "--run", tmp_path / "run"])
    assert "resuming from step" in done.stderr.decode()
    same_end(tmp_path / "run", run)


def same_end(directory, other):
    assert toy.records(directory)[-1] == toy.records(other)[-1]
    assert "dev_perplexity" in toy.records(other)[-1]
    read = [json.loads((d / "result.json").read_text()) for d in (directory, other)]
    for name in ("dev_perplexity", "averaged_steps", "scores"):
        assert read[0][name] == read[1][name]


@pytest.mark.full
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_stopped_run_ends_as_one_left_alone(number, run, words, tmp_path):
    """Stopped three times, each time between two evaluations."""
    directory, other = tmp_path / "run", tmp_path / "other"
    longer = [*words, "--steps", "100000", "--schedule", "inverse_sqrt"]
    wanted = EVERY
    for _ in range(3):
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


def test_two_processes_do_not_work_on_one_run(words, tmp_path, capsys):
    with toy.held(tmp_path):
        refused([*words, "--run", tmp_path], capsys, tmp_path, "another process")


@pytest.mark.full
def test_training_on_eight_devices(words, tmp_path):
    options = dict(capture_output=True, timeout=200, env=os.environ | EIGHT)
    words = [sys.executable, "-m", "t2t_jax.cli", *words, "--run", str(tmp_path / "run")]
    words += ["--accumulate", "2", "--batch_tokens", "400", "--mesh", "data=4,tensor=2"]
    done = subprocess.run(words, **options)
    assert done.returncode == 0, done.stderr.decode()
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["environment"]["device"].startswith("8 x")
    assert result["mesh"] == "data=4,tensor=2"
    assert result["kernels"] == "plain"
    assert result["scores"]["test"]["bleu"]["score"] > 50


@pytest.mark.full
@pytest.mark.parametrize("name", sorted(set(RECIPES) - {"big"}))
def test_every_recipe_trains(name, words, tmp_path):
    """One step at its own size, on a corpus of numbers."""
    corpus = ("corpus", "train", "dev", "test", "vocabulary", "max_length", "batch_tokens", "cache")
    kept = [w for n in corpus for w in words[words.index(f"--{n}") :][:2]]
    options = ["--steps", "1", "--directory", "", "--run", str(tmp_path / name)]
    assert main(["train", name, *kept, *options]) == 0


def test_the_output_in_a_pipe_is_plain_lines(run):
    output = (run / "printed.txt").read_text()
    assert "dev perplexity" in output
    assert "\r" not in output
    assert "\x1b" not in output


def test_a_diverged_run_stops_and_leaves_the_last_good_checkpoint(copy, words, capsys):
    """A finished run that is asked for more steps, at a rate that no float32 survives."""
    (copy / "result.json").unlink()
    shutil.rmtree(copy / "final")
    change_config(copy, steps=STEPS + 50, peak_lr=1e30)
    more = ["--steps", str(STEPS + 50), "--peak_lr", "1e30"]
    assert main([*words, *more, "--run", str(copy)]) == 1
    message = capsys.readouterr().err
    assert f"the checkpoint of step {STEPS} is good" in message
    assert "peak_lr" in message
    assert max(saved(copy)) == STEPS
    assert not (copy / "result.json").exists()


def refused(words, capsys, *mentions):
    """Exit code 2 and one sentence that mentions these."""
    assert main([str(word) for word in words]) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith("t2t-jax: ")
    assert error.endswith((".", "?", ")")), error
    for mention in mentions:
        assert str(mention) in error, error


def test_bad_words_are_refused(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the folder of a user may have a store
    refused(["train", "gramar"], capsys, "gramar", "'grammar'")
    refused(["train", "grammar", "--d_modle", "3"], capsys, "--d_modle", "'--d_model'")
    refused(["train", "grammar", "--h", "x"], capsys, "--h", "'x'")
    refused(["train", "grammar", "--norm_placement", "psot"], capsys, "norm_placement", "'post'")
    refused(["trian"], capsys, "trian")
    refused(
        ["translate", "nowhere"],
        capsys,
        "'nowhere' is neither a directory nor the name of a run",
        "--store",
    )
    refused(["evaluate", "nowhere", "--sources", "a"], capsys, "--references")


def test_bad_files_are_refused_and_nothing_is_left(words, corpus, tmp_path, capsys):
    new = tmp_path / "run"
    gone = [*words, "--run", new, "--dev", tmp_path / "gone"]
    refused(gone, capsys, tmp_path / "gone.en")
    for language in ("en", "de"):
        shutil.copy(corpus / f"dev.{language}", tmp_path)
    with (tmp_path / "dev.de").open("a") as file:
        file.write("eins\n")
    refused([*words, "--run", new, "--dev", tmp_path / "dev"], capsys, "dev.en", "20", "21")
    assert not new.exists()


def test_another_run_in_the_same_directory_is_refused(run, words, capsys):
    refused([*words, "--run", run, "--N", "2"], capsys, run, "N 1 there and 2 here", "--run")


@pytest.fixture
def copy(run, tmp_path):
    return Path(shutil.copytree(run, tmp_path / "copy"))


def change_config(directory, **changes):
    path = directory / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_a_checkpoint_of_another_model_is_refused(copy, capsys):
    change_config(copy, d_ff=24)
    refused(["translate", copy], capsys, copy, "W_1", "20", "24")
    change_config(copy, d_ff=20, N=2)
    refused(["translate", copy], capsys, copy, "coder_1", "absent")


def test_a_checkpoint_of_another_model_is_refused_in_an_unfinished_run(copy, words, capsys):
    shutil.rmtree(copy / "final")
    (copy / "result.json").unlink()
    change_config(copy, d_ff=24)
    refused(["translate", copy], capsys, copy, "W_1", "20", "24")
    refused([*words, "--d_ff", "24", "--run", copy], capsys, copy / "checkpoints", "W_1")


def test_a_damaged_checkpoint_is_set_aside(run, copy, words, capsys):
    """The run goes on from the one before, and ends as if nothing had been."""
    shutil.rmtree(copy / "final")
    (copy / "result.json").unlink()
    last = copy / "checkpoints" / str(STEPS)
    data = max((last / "params").rglob("*"), key=lambda p: p.stat().st_size * p.is_file())
    data.write_bytes(data.read_bytes()[:-1] + b"x")
    refused(["translate", copy], capsys, last, data.name, "damaged")
    done = command([*words, "--run", copy])  # compiled as the run was
    said = done.stderr.decode()
    assert done.returncode == 0, said
    assert f"checkpoint of step {STEPS} is damaged ({data.relative_to(last)} is changed)" in said
    assert f"resuming from step {STEPS - EVERY}" in said
    assert (copy / f"damaged-{STEPS}").is_dir()
    assert (copy / "test.de").read_bytes() == (run / "test.de").read_bytes()
    results = [json.loads((d / "result.json").read_text()) for d in (run, copy)]
    for name in ("dev_perplexity", "averaged_steps", "scores"):
        assert results[0][name] == results[1][name]


def test_damaged_parameters_are_refused(copy, capsys):
    (copy / "final" / "params" / "_METADATA").unlink()
    refused(["translate", copy], capsys, copy / "final", "_METADATA is missing")
    (copy / "final" / "sha256.json").write_text("{")
    refused(["translate", copy], capsys, copy / "final", "sha256.json")


def test_what_the_data_refuses_leaves_no_run(words, tmp_path, capsys):
    new = tmp_path / "run"
    refused([*words, "--accumulate", "64", "--run", new], capsys, "batch_tokens", "64")
    assert not new.exists()


@pytest.mark.full
def test_more_output_than_learned_positions_is_cut_and_said(words, tmp_path, capsys):
    options = ["--positions", "learned", "--max_extra", "3", "--steps", "2"]
    assert main([*words, *options, "--run", str(tmp_path / "run")]) == 0
    text = "one two three " * 40
    done = command(["translate", tmp_path / "run", "--max_extra", "200"], input=text.encode())
    assert done.returncode == 0, done.stderr.decode()
    assert b"23 positions" in done.stderr


def test_a_vocabulary_that_does_not_match_is_refused(copy, capsys):
    model = copy / "vocabulary.model"
    model.write_bytes(model.read_bytes()[:-1] + b"\x01")
    refused(["translate", copy], capsys, copy, "vocabulary.model")
    model.unlink()
    refused(["translate", copy], capsys, copy, "has no vocabulary.model")


def test_an_unknown_or_damaged_config_is_refused(copy, capsys):
    change_config(copy, d_modle=3)
    refused(["translate", copy], capsys, "config.json", "d_modle", "'d_model'")
    (copy / "config.json").write_text("{")
    refused(["translate", copy], capsys, "config.json", "JSON")


def test_a_run_without_a_checkpoint_is_refused(copy, capsys):
    shutil.rmtree(copy / "final")
    assert main(["evaluate", str(copy), "--sources", str(copy / "test.de"),
                 "--references", str(copy / "test.de")]) == 0  # fmt: skip
    capsys.readouterr()
    shutil.rmtree(copy / "checkpoints")
    refused(["translate", copy], capsys, copy, "no checkpoint")


def test_an_unfinished_run_says_which_step_is_used_and_is_not_exported(copy, capsys):
    shutil.rmtree(copy / "final")
    (copy / "result.json").unlink()
    last = STEPS - EVERY
    for step in range(STEPS, last, -1):
        shutil.rmtree(copy / "checkpoints" / str(step), ignore_errors=True)
    place = f"step {last} of {STEPS}"
    used = f"{copy} is not finished ({place}): its newest checkpoint is used."
    (copy / "a").write_text("one two\n")
    pair = "--sources", copy / "a", "--references", copy / "a"
    attend = "attend", copy, "one two", "--out", copy, "--cache", copy.parent / "cache"
    for words in (("evaluate", copy, *pair), attend):
        assert main([str(word) for word in words]) == 0
        assert used in capsys.readouterr().err.splitlines()
    done = command(["translate", copy], input=b"one two\n")
    assert done.stderr.decode().splitlines() == [used]
    out = copy / "out"
    refused(["export", copy, "--out", out], capsys, copy, "not finished", place)
    assert not out.exists()


def test_an_unknown_split_is_refused(run, capsys):
    refused(["evaluate", run, "--split", "tset"], capsys, "tset", "'test'")


def test_programs_are_kept_in_the_cache_or_where_the_environment_says(tmp_path, monkeypatch):
    kept = []
    monkeypatch.setattr(jax.config, "update", lambda *changed: kept.append(changed))
    cache_programs(tmp_path)
    assert kept == []  # the environment of tests names a place
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR")
    cache_programs(tmp_path)
    assert ("jax_compilation_cache_dir", str(tmp_path / "programs")) in kept


def test_lists(capsys):
    for what, wanted in {
        "profiles": "warmup",
        "recipes": "multi30k_tiny",
        "mechanisms": "scaled_dot_product",
        "fields": "d_model",
    }.items():
        assert main(["list", what]) == 0
        assert wanted in capsys.readouterr().out


def test_presets_are_listed_with_every_field_in_which_they_differ_from_the_paper(capsys):
    assert main(["list", "presets"]) == 0
    listed = " ".join(capsys.readouterr().out.split())
    for name, scale in PRESETS.items():
        changes = config.difference(shrink(Config(), {}, scale), Config())
        fields = (f"{n} {ours} (paper: {paper})" for n, (ours, paper) in changes.items())
        assert f"{name} {scale.about} {', '.join(fields)}".strip() in listed
    assert "schedule linear (paper: inverse_sqrt)" in listed
    table = (stored.DEMO / "table.md").read_text()
    (tau,) = re.findall(r"tau between our PPL and the paper's is (\S+)", table)
    assert f"Table 3 with the paper's: {tau} (PPL)" in listed


def test_a_profile_is_for_the_papers_recipes_and_says_what_it_sets(tmp_path, capsys):
    names = "norm_placement, schedule, peak_lr, warmup", "`train base --profile t2t`"
    refused(["train", "grammar", "--profile", "t2t"], capsys, "base and big", *names)
    words = [
        "--profile",
        "t2t",
        "--corpus",
        "text",
        "--train",
        tmp_path,
        "--norm_placement",
        "post",
    ]
    for name in ("base", "big"):
        assert main(["train", name, *map(str, words)]) == 2  # there is no such corpus
        said = capsys.readouterr().err.splitlines()[0]
        assert "profile t2t sets positions sinusoid_halves (paper: sinusoid), " in said
        assert "warmup 8000 (paper: 4000)" in said
        assert "lr_scale 2.0 (paper: 1.0)" in said
        assert said.endswith("; every other field that no flag sets is as in the paper")
        assert "norm_placement" not in said  # which a flag took back
