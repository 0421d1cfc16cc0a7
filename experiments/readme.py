"""Every stored result with the command that made it, as experiments/README.md.

    python experiments/readme.py        a second, with the standard library alone

Writes experiments/README.md from the files under experiments/results: tables, outputs and plots are
included as they are stored, and numbers beside them are read from the JSON in the same folder. Run
it after a result has changed; tests/test_readme.py fails until then. A new result is one entry in
`SECTIONS`.
"""

import json
import lzma
import math
import re
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

HOME = Path(__file__).parent
RESULTS = HOME / "results"
RUNS = "runs.jsonl.xz"
COST = "**Cost of a run**"
WIDTH = 100


class Result(NamedTuple):
    """One entry.

    Attributes:
      title: its heading.
      command: the commands that made it, one per line.
      text: how to read it.
      files: the files that are shown, as paths under experiments/results.
    """

    title: str
    command: str
    text: str
    files: tuple[str, ...]


HEAD = """# Results

This file lists every stored result with the command that made it. `python experiments/readme.py`
generates it from the files in `experiments/results/`. Change the prose in `experiments/readme.py`,
not here.
"""

READING = """## Reading a table

- **Rows.** The first row is base. Every other row shows only the fields in which it differs from
  base; a blank cell means the value of base.
- **`512→64`.** The value before the arrow is the paper's. The value after it is the one that was
  run. A preset shrinks every row of a table by the same factors.
- **"paper" and "ours".** The paper reports WMT14 EN-DE. The stored runs are small models on small
  corpora, so compare the differences between rows, not the values. A blank cell of the paper is
  blank in the paper, too.
- **n.** The number of seeds. A cell with n > 1 is the mean ± the standard deviation over seeds.
- **Bold.** The best value of a column.
- **The star, \\*.** The row differs significantly from base. The test is Welch's t over seeds,
  with the variance over sentences added, and Bonferroni's correction over the rows that are
  tested. A row with one seed has no test, because one run does not show how much seeds differ.
- **"untuned" and "tuned".** With `--sweep`, each row is shown at the values of the preset, and at
  those that were chosen for it. ‡ marks a chosen value at the edge of its range.
- **"Missing".** These rows have fewer seeds than the row with the most seeds.
- **"Made by code".** A fingerprint of the code that the runs executed. A table refuses to mix
  versions of the code, dtypes, devices or libraries, unless `--mix` marks them with †.
- **Difference plots.** The difference in BLEU or F1 from base, with a 95% interval. A dashed
  interval covers the choice of sentences alone, because the row or base has one seed. The paper's
  differences have the axis above, which has another scale and the same 0.
- **Learning plots.** Perplexity against steps, tokens, FLOPs and training time: base in every row
  of panels, with one group of the table or several single rows. A band extends from the lowest to
  the highest seed.
- **Distance plots.** The score against the longest dependency in a sentence, and against the
  length of the sentence.

`table` prints the table of any of these folders again, without training; `--format latex`, `csv` or
`json` gives other formats. `publish` stores the results of your own runs in the same way:

```sh
launch/local.sh table table3 --store experiments/results/table3-demo --format md
launch/local.sh publish table3 --to experiments/results
```
"""

SECTIONS = {
    "Table 3: variations on the Transformer": [
        Result(
            "Table 3, preset demo",
            "launch/local.sh run table3",
            """
            The rows of the paper's Table 3 on the built-in corpus, a synchronous grammar of
            English and German, with one seed each. The regime (easy sentences, 2,000 pairs,
            1,280 steps, half of the learning rate that the paper's rule gives) was chosen by the
            results of groups C and D; those of A, B and E had no part in the choice. Base has
            d_k = d_v = 8 here, which is narrow: rows with fewer and wider heads gain, and rows
            with narrower ones lose more than in the paper. With one seed, small differences are
            not meaningful: add `--seeds 3` to test every row. The command reproduces these
            digits on the same kind of CPU with the same number of cores for each worker. Another
            kind of CPU rounds differently, and the figures then differ as much as those of another
            seed. `run.txt` is what the command printed.
            """,
            (
                "table3-demo/table.md",
                "table3-demo/table3-demo-differences.png",
                "table3-demo/table3-demo-agreement.png",
            ),
        ),
        Result(
            "Table 3, preset hour, tuned",
            """
            launch/local.sh run table3 --preset hour --sweep lr_scale=0.25,0.35,0.5,0.7 --seeds 3
            """,
            """
            The same with twice the width, so that a head of base has 16 features, on 3,000 pairs,
            with three seeds of every row, at the learning rate of the preset (untuned) and at the
            best of four for each row (tuned). `fidelity.py` compares its agreement with that of
            other regimes. The rows of groups A and B have the paper's order. Rows of different
            groups need not: this corpus needs less depth than the paper's, so that N = 2 and N = 4
            lose less, and a model without dropout has a worse perplexity, but not a worse BLEU.
            """,
            (
                "table3-hour/table.md",
                "table3-hour/table3-hour-differences.png",
                "table3-hour/table3-hour-agreement.png",
            ),
        ),
        Result(
            "Table 3, preset multi30k",
            """
            launch/local.sh run table3 --preset multi30k --directory DIR
            launch/local.sh run table3 --preset multi30k --directory DIR --seeds 3 \\
              --rows base A:h=4,d_k=128,d_v=128 D:eps_ls=0.2 E
            """,
            """
            The same rows on real text, Multi30k EN-DE. DIR holds the corpus files; without
            `--directory` they are downloaded. The second command adds seeds to base and to
            three rows whose results are close to those of base. The order of the rows is not the
            paper's: after 1,600 steps, a model without dropout is the best.
            """,
            (
                "table3-multi30k/table.md",
                "table3-multi30k/table3-multi30k-differences.png",
                "table3-multi30k/table3-multi30k-agreement.png",
            ),
        ),
        Result(
            "Agreement with the paper, by grid",
            "launch/local.sh experiments/fidelity.py",
            """
            How small can a grid be and still order the rows as the paper does, and must each row
            be tuned? Kendall's tau of grids with the paper's values, and their cost. At preset
            hour, tuning each row changes tau by 0.01. The command reads finished grids; with the
            names of others, it runs them.
            """,
            ("fidelity/table.md", "fidelity/fidelity.png"),
        ),
    ],
    "Modifications": [
        Result(
            "Modifications of the Transformer",
            "launch/local.sh run modifications --preset short --seeds 3",
            """
            Parts of a layer that later models changed, each alone, and several together in the
            last row: norms, feed-forward layers, position schemes and a norm of queries and keys.
            Gated layers have a smaller d_ff, so that all rows have about the same number of
            parameters. With this short training and its high learning rate, post-norm does not
            train well.
            """,
            (
                "modifications-short/table.md",
                "modifications-short/modifications-short-differences.png",
            ),
        ),
    ],
    "Attention": [
        Result(
            "Which attention for what",
            "launch/local.sh experiments/mechanisms.py",
            """
            One line for each row of the study of attention mechanisms, from the stored results
            below. PPL, BLEU and BLEU on longer sentences are from that study, for equal steps; a
            star marks a significant difference from the first row. `equal FLOPs` is BLEU with as
            many steps as the FLOPs of the first row allow, where they are not about the same.
            `agreement` is the accuracy on minimal pairs whose two agreeing words are at least 5
            words apart. `recall` is the accuracy of associative recall with d_k = 8 and 32. Speed
            is that of value and gradient on CPU cores, relative to scaled dot products, and
            `faster from` is the length from which a mechanism is faster, if it is more than 1.2
            times as fast at 2,048. `roles` are those in which it was used. A blank cell was not
            measured, or does not apply. The state is what
            decoding keeps of 2,048 tokens, with 8 heads of 64 features in float32. The plot shows
            recall against the state that its second layer keeps of 56 tokens.
            """,
            ("mechanisms/table.md", "mechanisms/recall.png"),
        ),
        Result(
            "Attention mechanisms",
            """
            launch/local.sh run attention --seeds 3
            launch/local.sh report attention --store experiments/results/attention-demo
            """,
            """
            The same model with each attention mechanism in every role that it supports, except that
            windows and sparse patterns leave cross-attention to scaled dot products. Coverage is
            left out, as it needs a recurrent decoder. All rows are trained on the same pairs for
            the same number of steps at the same learning rate. That rate was chosen for scaled dot
            products: a mechanism far below base may need another, which `--sweep lr_scale=0.5,1,2`
            finds. Sentences have 10 subwords on average, those of test_long 22. `contrastive` is
            the share of minimal pairs in which the translation is likelier than the same
            translation with one error. The mechanisms with a memory are only the attention of their
            papers' layers, without short convolutions and output gates. The second command makes a
            page of the study for a browser.
            """,
            (
                "attention-demo/table.md",
                "attention-demo/attention-demo-contrastive.png",
                "attention-demo/attention-demo-distances.png",
            ),
        ),
        Result(
            "Attention mechanisms at equal FLOPs",
            "launch/local.sh run attention_flops --seeds 3",
            """
            The mechanisms whose FLOPs differ from those of scaled dot products by more than 7%,
            each trained for as many steps as the FLOPs of scaled dot products allow. Matrix
            products are counted, forwards and backwards, for sentences of 15 positions, the mean
            with padding. At this length, attention that is linear in the length has more products
            than scaled dot products: its advantage begins with longer sequences. `FLOPs counted`,
            in the table of costs, are those of the true lengths.
            """,
            ("attention_flops-demo/table.md",),
        ),
        Result(
            "Associative recall",
            "launch/local.sh run recall --preset diagnostic --seeds 3",
            """
            Multi-query associative recall (Arora et al. 2023) with 8 keys. The first layer of each
            model attends to a window of two positions, in which a value can see its key; the
            second has the mechanism that is compared. With one head and d_v = 32, a mechanism with
            a fixed state keeps d_k d_v numbers, and taylor (1 + d_k + d_k²) d_v. A model that
            guesses among the values not yet given reaches an accuracy of 34%. A large deviation
            means that a seed had not found the solution after 2,000 steps.
            """,
            ("recall-diagnostic/table.md", "recall-diagnostic/recall-diagnostic-learning.png"),
        ),
        Result(
            "Hybrids by layer",
            "launch/local.sh run hybrids --preset diagnostic --seeds 3",
            """
            The same task for decoders of four layers with sinusoids and one head. A row names the
            mechanisms of its layers, from the first; a shorter list repeats. Above three windows,
            softmax in the last layer finds the value with every seed; above three layers of linear
            attention or of the delta rule, with none. Layers of linear attention and softmax in
            turn find it with two of three seeds, and softmax in all four layers with none.
            """,
            ("hybrids-diagnostic/table.md", "hybrids-diagnostic/hybrids-diagnostic-learning.png"),
        ),
        Result(
            "Longer sequences",
            "launch/local.sh run lengths --preset diagnostic --seeds 3",
            """
            Decoders with different position schemes recall the value of each of 4 keys, in
            sequences of 1, 2, 4 and 8 times the length of training. Guessing among the values not
            yet given has an accuracy of 52%. A large deviation means that a seed has not found the
            solution.
            """,
            ("lengths-diagnostic/table.md", "lengths-diagnostic/lengths-diagnostic-learning.png"),
        ),
        Result(
            "Longer brackets",
            "launch/local.sh run lengths_dyck --preset diagnostic --seeds 3",
            """
            The same position schemes on nested brackets: a model names the bracket that closes
            next, of 16 types nested up to 4 deep.
            """,
            (
                "lengths_dyck-diagnostic/table.md",
                "lengths_dyck-diagnostic/lengths_dyck-diagnostic-learning.png",
            ),
        ),
        Result(
            "Induction by depth",
            "launch/local.sh run induction --preset diagnostic --seeds 3",
            """
            Recall of 4 keys by decoders of one and of two layers. One layer cannot connect a value
            to the key before it, and its accuracy is at most that of guessing, 52%.
            """,
            (
                "induction-diagnostic/table.md",
                "induction-diagnostic/induction-diagnostic-learning.png",
            ),
        ),
        Result(
            "Time and memory against the length",
            """
            launch/local.sh bench attention --seconds 10 --lengths 256 512 1024 2048 \\
              --out experiments/results/bench_attention
            """,
            """
            Each mechanism alone, without projections: the value with its gradient, the value, and a
            step of decoding at length n with the bytes of its state. `faster from` is the length
            from which it is faster than scaled dot products, which is noise where both cost about
            the same. The exponents are fitted to the measured times and memory. `additive_naive` is
            additive attention written as a plain [T, S, d] expression, for comparison. A mechanism
            is dropped at the length where a call is expected to take longer than `--seconds`, or
            more memory than is available.
            """,
            ("bench_attention/attention.png", "bench_attention/attention.txt"),
        ),
        Result(
            "Attention weights of one model",
            'launch/local.sh attend runs/grammar-0 "The dog that the woman saw sleeps."',
            """
            Each panel shows the weights of one head: rows are queries, columns are keys. The
            run is the [model of the built-in corpus](#built-in-corpus). The command also writes
            a page on which you choose a head and a token. On the built-in corpus it prints the
            alignment error rates of the best cross-attention heads, and names the decoder heads
            that track subjects, separable prefixes and antecedents. It works for every mechanism;
            for one that never computes weights, such as linear attention, it shows effective ones.
            """,
            ("grammar/attention.png",),
        ),
    ],
    "Other architectures": [
        Result(
            "Table 1: complexity of a layer",
            "launch/local.sh experiments/table1.py",
            """
            The paper's Table 1, measured. FLOPs are counted in the traced program. The
            exponents of time and memory are fitted to measurements of the forward pass. The path
            length is the number of layers, times the sequential steps within a layer, after which
            the first position of a sequence influences the last.
            """,
            ("table1/table1.md", "table1/table1.png"),
        ),
        Result(
            "Table 2: architectures at equal steps",
            "launch/local.sh run table2 --preset short --seeds 3",
            """
            The Transformer beside recurrent and convolutional sequence-to-sequence models. At the
            paper's scale, every architecture but Transformer big has about as many parameters as
            base. The three BLEU scores that the paper reports have the reverse order here. The
            study `table2_flops` gives each row as many steps as the training FLOPs of base allow.
            """,
            ("table2-short/table.md", "table2-short/table2-short-distances.png"),
        ),
        Result(
            "Table 2, trained for longer",
            """
            launch/local.sh run table2 --preset short --rows LSTM "LSTM, dot" --steps 5120 \\
                --evaluate_every 16
            """,
            """
            Base, and an LSTM with and without attention, for more steps. Without attention, the
            encoder passes a single context vector to the decoder, and BLEU falls with the length
            of the sentence.
            """,
            ("longer/table2-short/table.md", "longer/table2-short/table2-short-distances.png"),
        ),
        Result(
            "Table 4: constituency parsing",
            "launch/local.sh run table4 --preset treebank --directory DIR",
            """
            Parsing as translation from sentences to trees, on the free sample of the Penn
            Treebank. The sample is small and its split is not the usual one, so these F1 scores
            must not be compared with the paper's 91.3. DIR holds the sample.
            """,
            ("table4-treebank/table.md", "table4-treebank/table4-treebank-differences.png"),
        ),
        Result(
            "Language models",
            "launch/local.sh run language_model --preset short",
            """
            The decoder alone as a causal language model, the encoder alone as a masked one, and
            the full Transformer. The perplexity of the encoder is a pseudo-perplexity: each
            token is masked in turn.
            """,
            (
                "language_model-short/table.md",
                "language_model-short/language_model-short-learning.png",
            ),
        ),
    ],
    "Single models": [
        Result(
            "Built-in corpus",
            "launch/local.sh train grammar",
            """
            One model of the built-in corpus. The sentences of `test` are drawn like those of
            the training set. `test_long` has longer sentences than the training set, and
            `test_deep` has deeper nesting.
            """,
            ("grammar/runs.jsonl.xz",),
        ),
        Result(
            "Multi30k EN-DE, test2016",
            "launch/local.sh run multi30k --preset paper --directory DIR --seeds 3",
            """
            Three recipes at the size of Transformer-Tiny. Wu et al. (2021) report 41.02 in the
            column `BLEU lc tok`, from one run on lowercased, tokenised text; these recipes read raw
            text. The runs were trained on an H200 in float32. Two seeds of `hour`, marked †, were
            trained there for 12,000 steps and then on a CPU, with the tokenised corpus of the
            H200's machine; `table` shows them with `--mix`.
            """,
            ("multi30k-paper/table.md", "multi30k-paper/multi30k-paper-learning.png"),
        ),
    ],
    "The built-in corpus": [
        Result(
            "Grades of difficulty",
            "launch/local.sh experiments/grades.py",
            """
            The 60,000 training pairs of every grade (`--grade`), in means, counts and shares of
            sentences. The docstring of the script explains the columns.
            """,
            ("grades/table.md",),
        ),
    ],
    "Statistics": [
        Result(
            "False stars and power",
            "launch/local.sh experiments/significance.py",
            """
            How often a table has a false star, and how often a true difference gets a star, in
            simulated tables with the standard deviations of stored studies. The tables of this
            project use the first procedure, Welch's t with Bonferroni's correction. It hardly ever
            marks a difference that does not exist, and with three seeds it misses most differences
            below 5 BLEU: a missing star does not show that two rows are equal.
            """,
            ("significance/table.md",),
        ),
    ],
    "Parametrization": [
        Result(
            "Coordinate check of muP",
            "launch/local.sh experiments/coordinates.py",
            """
            How far four steps at one learning rate move the activations of models of growing
            width, with the standard parametrization and with `--parametrization mup`: the mean
            absolute change, and the exponent of its growth with d_model. Under muP the exponent
            should be close to 0, so that one learning rate can serve all widths; no sweep has
            tested whether it does. A part of the change of the logits is as large as the initial
            logits, which shrink as d_model^-0.5. Wider models have more heads; in the last rows
            they have two wider heads, and their scores are divided by d_k. Four steps do not
            distinguish this from a division by √d_k.
            """,
            ("coordinates/coordinates.md", "coordinates/coordinates.png"),
        ),
    ],
    "Fault tolerance": [
        Result(
            "What a run survives",
            "launch/local.sh experiments/faults.py",
            """
            The training of a small model is killed, its checkpoints are damaged, and its disk and
            clock fail. A run that resumes must end with the same parameters, metrics, translations
            and scores as one that was never interrupted, bit for bit.
            """,
            ("faults/faults.md",),
        ),
    ],
    "Scale": [
        Result(
            "Weak scaling on a TPU slice, estimated",
            "tpu/bin/python experiments/scaling.py",
            """
            An estimate, not a measurement. The TPU compiler compiles a step for a v5e slice; its
            memory and the bytes that it sends are read from the program. The times are computed
            from Google's figures for a chip. Efficiency is the share of a step that is spent
            computing: at worst no communication overlaps with computation, at best all does. As
            chips are added, the efficiency at worst falls slightly with `data` and somewhat more
            with `fsdp`. With `tensor=8` a step spends most of its time on communication, whatever
            the number of chips. The docstring of the script explains how to make the environment
            `tpu/`.
            """,
            ("scaling/scaling.md",),
        ),
        Result(
            "On a GPU",
            "python -m experiments.gpu steps kernels peers --sizes base",
            """
            Measured on one NVIDIA H200 with jax 0.11.2; 25,000 tokens a side. `faster` is the time
            of a plain definition divided by that of its kernel, in bfloat16; the errors are the
            largest differences from float32, relative to the largest value. The fused feed-forward
            layer is slower than XLA's own products. The second list has the rounds of base's
            training step, the first of which compiles; the part then stopped at a bug that has
            since been fixed, before it could store more. PyTorch's nn.Transformer takes the same
            batches, eager and with `torch.compile`.
            """,
            ("gpu/kernels/kernels.txt", "gpu/steps/printed.txt", "gpu/peers/peers.txt"),
        ),
        Result(
            "Programs compiled for a GPU",
            "gpu/bin/python experiments/programs.py",
            """
            A lower bound, not a measurement: no GPU is needed. XLA compiles each program for the
            device. The least time of a kernel is that of reading its operands and writing its
            results at full bandwidth, or of its matrix products at peak speed if that is longer.
            Launches come on top, about 3 µs each where they are not hidden, and no kernel reaches
            its bound: compare the step of base on an H200 above. The first list has the kernels of
            `t2t_jax/ops`, the second is with `--kernels plain`. Of the mechanisms, the dot products
            (cuDNN), local, the sparse ones, local-p and causal linear attention have kernels;
            additive attention and performer have code for GPUs without kernels of their own. The
            bound of local-p counts all pairs of tiles; where neighbouring queries predict
            neighbouring positions, its kernel skips most of them. The last lists are of
            populations: several tiny models in one program, whose number of kernels does not grow
            with that of the models. `experiments/gpu.py steps` compares the time on a device with
            the bound. The docstring of the script explains how to make the environment `gpu/`.
            """,
            (
                "programs/compile-h100.txt",
                "programs/compile-h100.png",
                "programs/compile-h100-plain.txt",
                "programs/compile-h200.txt",
                "programs/compile-v5e.txt",
                "programs/compile-h100x8.txt",
                "programs/compile-h100-2048-tokens.txt",
                "programs/compile-h100-3-models-2048-tokens.txt",
                "programs/compile-h100-8-models-2048-tokens.txt",
                "programs/compile-h100-20-models-2048-tokens.txt",
            ),
        ),
        Result(
            "Memory of a step",
            "tpu/bin/python experiments/memory.py",
            """
            The memory of a step with the paper's batch on one v5e chip, taken whole or in parts
            (`--accumulate`), as the TPU compiler reports it.
            """,
            ("memory/memory.md",),
        ),
    ],
    "Speed": [
        Result(
            "Training",
            "launch/local.sh bench train --sizes tiny base --out experiments/results/bench",
            """
            `tiny` is a Transformer with 4 + 4 layers and d_model 128; `base` is the paper's. The
            peak is the speed of a float32 matrix product on the same device between the rounds.
            Compare rates within a table: those of `Other toolkits` were measured at another time.
            """,
            ("bench/train.txt",),
        ),
        Result(
            "Translation",
            "launch/local.sh bench translate --sizes tiny --out experiments/results/bench",
            """
            Sentences translated in a second, with greedy search and with a beam of 4.
            """,
            ("bench/translate.txt",),
        ),
        Result(
            "Input",
            "launch/local.sh bench input --out experiments/results/bench",
            """
            The speed of reading batches, without a model.
            """,
            ("bench/input.txt",),
        ),
        Result(
            "Start",
            "launch/local.sh bench start --out experiments/results/bench",
            """
            The time from the command to the first training step, with an empty cache of
            compiled programs and with a full one.
            """,
            ("bench/start.txt",),
        ),
        Result(
            "All of Table 3",
            "time launch/local.sh run table3",
            """
            The wall-clock time of the whole study, preset demo, with an empty cache, at commit
            badcf48.
            """,
            ("bench/table3.txt",),
        ),
        Result(
            "Before optimisation",
            """
            git worktree add before 8cc5347
            git -C before checkout 062d043 -- t2t_jax/bench t2t_jax/cli.py t2t_jax/commands.py
            before/launch/local.sh bench start --out experiments/results/bench_before
            """,
            """
            The time to start at commit 8cc5347, before the code was optimised, and the wall-clock
            time of Table 3, which had half of the steps and a larger vocabulary then.
            """,
            ("bench_before/start.txt", "bench_before/table3.txt"),
        ),
        Result(
            "Other toolkits",
            """
            launch/local.sh experiments/peers/run.py --python DIR/bin/python --against before \\
              --out experiments/results/bench_peers
            """,
            """
            PyTorch, OpenNMT-py, JoeyNMT, CTranslate2 and the checkout `before` take turns with
            this project on the same work, in float32, and with dropout in training. The rates are
            tokens of both sides a second, without padding, or sentences a second. The last column
            is the ratio of the rates: above 1, this project is faster. CTranslate2 is faster than
            this project when each core decodes a batch of its own, and slower when all cores share
            one batch.
            """,
            ("bench_peers/peers.txt",),
        ),
        Result(
            "Computations written for speed",
            "launch/local.sh experiments/ops.py",
            """
            Each function of `t2t_jax/ops/` takes turns with its plain definition, in value and
            gradients, at the sizes of the base model. `times as fast` is the median of the ratios
            of the rounds. The NaN guard is compared with attention without it, so its ratio is its
            cost.
            """,
            ("ops/ops.md",),
        ),
    ],
}


def page() -> str:
    """The text of experiments/README.md."""
    contents = ["- [Reading a table](#reading-a-table)"]
    body = []
    for title, entries in SECTIONS.items():
        contents.append(f"- [{title}](#{anchor(title)})")
        contents += [f"  - [{x.title}](#{anchor(x.title)})" for x in entries]
        body += [f"## {title}", *(part for x in entries for part in entry(x))]
    return "\n\n".join([HEAD.strip(), "\n".join(contents), READING.strip(), *body]) + "\n"


def anchor(title: str) -> str:
    """The fragment by which GitHub links to a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def entry(result: Result) -> Iterator[str]:
    """The blocks of one entry."""
    yield f"### {result.title}"
    yield f"```sh\n{textwrap.dedent(result.command).strip()}\n```"
    words = " ".join(result.text.split())
    yield textwrap.fill(words, WIDTH, break_long_words=False, break_on_hyphens=False)
    paths = [RESULTS / name for name in result.files]
    for path in paths:
        yield shown(path, result.title)
    if made := origin(paths[-1]):
        yield made
    if paths[0].name == "table.md" and (others := _beside(paths)):
        yield f"Also stored: {', '.join(f'[{p.name}]({_link(p)})' for p in others)}."


def shown(path: Path, title: str) -> str:
    """A stored file as Markdown."""
    if path.suffix == ".png":
        return f"![{title}]({_link(path)})"
    if path.name == RUNS:
        return scores(_results(path.parent)[0])
    text = path.read_text()
    if path.name == "table3.txt":
        return f"```\n{_wall_clock(text)}\n```"
    if path.suffix == ".txt":
        return f"```\n{text.strip(chr(10))}\n```"
    table, _, costs = text.partition(COST)
    if not costs:
        return text.strip()
    folded = f"<details><summary>Cost of a run</summary>\n\n{costs.strip()}\n\n</details>"
    return f"{table.strip()}\n\n{folded}"


def scores(result: dict[str, Any]) -> str:
    """The size, the time and the scores of one run."""
    kept = ("bleu", "chrf")
    names = {s: found for s, found in next(iter(result["scores"].values())).items() if s in kept}
    lines = [["split", *(x["name"] for x in names.values())]]
    lines.append(["---"] * len(lines[0]))
    lines += [
        [split, *(f"{found[s]['score']:.2f}" for s in kept)]
        for split, found in result["scores"].items()
    ]
    took = duration(result["training_seconds"] + result["scoring_seconds"])
    facts = [f"{x['name']}: `{x['signature']}`" for x in names.values()] + [
        f"{result['parameters']:,} parameters, {result['steps']:,} steps, dev perplexity "
        f"{result['dev_perplexity']:.3f}, {took} for training and scoring"
    ]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return "\n\n".join([table, "\n".join(f"- {fact}" for fact in facts)])


def origin(path: Path) -> str:
    """Where a result was made, from the JSON or the runs that are stored beside it."""
    beside = path.with_suffix(".json")
    if beside.exists():
        return _made_on(json.loads(beside.read_text())["environment"])
    if not path.with_name(RUNS).exists():
        return ""
    results = _results(path.parent)
    made = list(dict.fromkeys(_made_on(result["environment"]) for result in results))
    total = duration(math.fsum(map(_seconds, results)))
    count = f"{len(results)} runs, {total} in sum. " if len(results) > 1 else ""
    return count + " ".join(made)


def _made_on(environment: dict[str, Any]) -> str:
    names = ("python", "jax", "flax", "libtpu")
    versions = ", ".join(f"{name} {environment[name]}" for name in names if name in environment)
    where = f"{environment['device']} ({environment['cores']} cores, {environment['host']})"
    return f"Made on {where} with {versions}."


def _results(folder: Path) -> list[dict[str, Any]]:
    """The result of every run that is published in a folder."""
    with lzma.open(folder / RUNS, "rt", encoding="utf-8") as lines:
        return [json.loads(line)["result.json"] for line in lines]


def _seconds(result: dict[str, Any]) -> float:
    """Seconds of training, compiling, evaluating and scoring; of a population, the run's share."""
    shared = result["training_seconds"] + result.get("overhead_seconds", 0)
    scoring = sum(s["seconds"] for s in result.get("scoring", {}).values())
    return shared / result.get("trained_together", 1) + scoring + result.get("scoring_seconds", 0)


def duration(seconds: float) -> str:
    """`4 min 09 s`, `2 h 05 min`."""
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02} min"


def _wall_clock(log: str) -> str:
    """What `time` printed at the end of a log."""
    minutes, seconds = re.findall(r"^real\t(\d+)m([\d.]+)s$", log, re.M)[-1]
    return f"real  {duration(60 * int(minutes) + float(seconds))}"


def _beside(shown: Sequence[Path]) -> list[Path]:
    """The other plots and logs in the folder of a result."""
    folder = shown[0].parent
    return [p for p in sorted(folder.glob("*")) if p.suffix in (".png", ".txt") and p not in shown]


def _link(path: Path) -> str:
    return path.relative_to(HOME).as_posix()


if __name__ == "__main__":
    (HOME / "README.md").write_text(page())
