"""What README.md and experiments/README.md say of results is true of the stored numbers.

If a test fails after a result has changed, correct the sentence.
"""

import contextlib
import functools
import io
import itertools
import json
import operator
import re
from pathlib import Path

import numpy as np
import pytest

from experiments import mechanisms, noise, scale
from experiments.tools import readme
from t2t_jax.attention import MECHANISMS, build
from t2t_jax.cli import main
from t2t_jax.runs import published

ROOT = Path(__file__).parents[1]
INDUCTION = "A:N=4,positions=relative", "A:N=4,positions=sinusoid"  # two layers
README, RESULTS = ROOT / "README.md", ROOT / "experiments" / "README.md"


@functools.cache
def rows_of(folder):
    """Returns the record of each row of a stored study, as `table --format json` prints it."""
    home, out = readme.RESULTS / folder, io.StringIO()
    study = Path(folder).name.rpartition("-")[0]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        assert main(["table", study, "--store", str(home), "--format", "json"]) == 0
    return {row["row"]: row for row in json.loads(out.getvalue())}


def mean(folder, row, metric="BLEU", part="tuned"):
    record = rows_of(folder)[row]
    return (record["untuned"] if part == "untuned" else record)[metric]["mean"]


def gap(folder, row, base, metric="BLEU", part="tuned"):
    return mean(folder, row, metric, part) - mean(folder, base, metric, part)


def cost(folder, row, name):
    return rows_of(folder)[row]["runs"][0][name]


def treebank_claims():
    """Yields sentences about parsing by the size of the treebank, likewise."""
    home = readme.RESULTS / "treebanks"
    constrained = json.loads((home / "constrained.json").read_text())
    free, gains = {}, []
    for run in published.directories(home):
        name, row, _ = published.read(run, "names.txt").split("\n")[0].split("/")
        F1 = published.read(run, "result.json")["scores"]["test"]["f1"]["score"]
        free[name.partition("corpus=")[2], row] = F1, constrained[run.name]["f1"]
        gains.append(constrained[run.name]["f1"] - F1)
    leads = {
        corpus: [b - a for a, b in zip(free[corpus, "Transformer"], scores, strict=True)]
        for (corpus, row), scores in free.items()
        if row == "LSTM with attention"
    }
    of_sample = [leads[f"wsj_sample,pairs={n}"] for n in (500, 1000, 2547)]
    growing = of_sample[0][0] < of_sample[1][0] < of_sample[2][0]
    yield "grows with the data, from less than 0.1 F1 on 500", growing and of_sample[0][0] < 0.1
    yield f"to {of_sample[2][0]:.1f} on 2,547", True
    trees = [free["grammar_trees,pairs=2500", x][0] for x in ("Transformer", "LSTM with attention")]
    yield "the Transformer has {:.1f} and the LSTM {:.1f}".format(*trees), True
    yield f"gain {min(gains):.0f} to {max(gains):.0f} F1", True
    yield (
        "the LSTM stays ahead on 1,000 sentences and more",
        all(lead > 0 for _, lead in (*of_sample[1:], leads["grammar_trees,pairs=2500"])),
    )


def transfer_claims():
    """Yields sentences about learning rates across widths, likewise."""
    stored = json.loads((readme.RESULTS / "transfer-demo" / "best.json").read_text())
    rates = {name: [x["best"] for x in widths.values()] for name, widths in stored.items()}
    narrow, *_, wide = stored["standard"].values()
    falls = [a / b for a, b in itertools.pairwise(rates["standard"])]
    yield "halves with every doubling of the width", all(1.9 < x < 2.2 for x in falls)
    yield f"{narrow['best']:.4f} at d_model 32 to {wide['best']:.4f} at 256", True
    yield f"loses {wide['transferred']:.2f} nats", True
    best = min(rates["mup"]), max(rates["mup"])
    yield "the best rate is between {:.4f} and {:.4f} at every width".format(*best), True
    widest = stored["mup"]["256"]
    yield "costs the widest nothing", widest["transferred"] == 0
    yield f"the widest is {wide['NLL'] - widest['NLL']:.3f} nats better", True


def language_model_claims():
    """Yields sentences about parts of a language model, likewise."""
    rows = {n: x for n, x in rows_of("language_models-text").items() if x["NLL"]}
    gain = {name: gap("language_models-text", "base", name, "NLL") for name in rows}
    p = {name: x["NLL_difference"]["p"] for name, x in rows.items() if name != "base"}
    untied, none, alibi, gated, latent, linear, post = named = (
        "S:embeddings=untied", "P:positions=none", "P:positions=alibi", "F:feed_forward=swiglu",
        "K:d_c=128", "A:decoder_attention=linear", "N:norm_placement=post",
    )  # fmt: skip
    sizes = [rows[name]["runs"][0]["parameters"] for name in (untied, "base")]
    more = sizes[0] / sizes[1] - 1
    yield (
        f"they gain {gain[untied]:.2f} nats, with {more:.0%} more",
        max(gain, key=gain.get) == untied,
    )
    schemes = {name: x for name, x in gain.items() if name[:2] == "P:"}
    yield f"no positions are {gain[none]:.2f} nats better, and ALiBi, the best", True
    yield f"the best scheme, {gain[alibi]:.2f} nats. Gated", max(schemes, key=schemes.get) == alibi
    yield f"layers gain {gain[gated]:.2f} nats over ReLU", True
    yield f"gains {gain[latent]:.2f}, and linear attention {gain[linear]:.2f}. Post-norm", True
    significant = max(p[name] for name in named) < 0.05
    yield f"Post-norm loses {-gain[post]:.2f}. These differences are significant", significant
    others = [name for name in rows if name[:2] in ("A:", "H:") and name != linear]
    small = len(others) > 5 and all(p[x] >= 0.05 and abs(gain[x]) < 0.1 for x in others)
    yield "from full attention are not, and are below 0.1 nats", small
    last = "F:feed_forward=gelu", "S:logit_cap=30.0", "S:z_loss=0.0001", "N:norm=layer_norm_no_bias"
    same = [name for name in rows if name.startswith(last)]
    yield (
        "of layers without biases, of capped logits and of z-loss",
        len(same) == 4 and all(p[name] >= 0.05 for name in same),
    )


def decoder_claims():
    """Yields sentences about mechanisms in decoders of documents, likewise."""
    folder, row = "decoders-text", "A:decoder_attention={}".format
    rows, early = rows_of(folder), rows_of("decoders_tenth/decoders-text")
    gain = {x: gap(folder, "base", row(x), "NLL") for x in MECHANISMS if row(x) in rows}
    p = {x: rows[row(x)]["NLL_difference"]["p"] for x in gain}
    base = rows["base"]["runs"][0]
    yield f"a decoder of {base['parameters'] / 1e6:.1f} million parameters, with three seeds", True
    better, worse = (
        ("differential", "forgetting", "linear", "cosformer"),
        ("dot_product", "retention", "gated_linear", "mamba2"),
    )
    yield (
        f"Differential attention gains {gain['differential']:.2f} nats over scaled dot products, "
        f"forgetting attention {gain['forgetting']:.2f}, linear attention {gain['linear']:.2f} and "
        f"cosFormer {gain['cosformer']:.2f}; only the first is significant in NLL",
        [x for x in better if p[x] < 0.05] == ["differential"],
    )
    yield (
        "Unscaled dot products lose {:.2f} nats, retention {:.2f}, gated linear attention {:.2f} "
        "and mamba2 {:.2f}, all significantly".format(*(-gain[x] for x in worse)),
        max(p[x] for x in worse) < 0.05,
    )
    order = sorted(early, key=lambda name: early[name]["PPL"]["mean"])
    yield (
        "After a tenth of the steps, linear attention is behind all rows but one",
        order[-2] == row("linear"),
    )


def scaling_claims():
    """Yields sentences about the fits of language models, likewise."""
    stored = json.loads((readme.RESULTS / "scaling_laws-text" / "laws.json").read_text())
    runs = {name: np.array(x["runs"]) for name, x in stored.items()}
    softmax, window, memory = (x[:, 3] for x in runs.values())
    tokens = next(iter(runs.values()))[:, 1]
    (low, *_, high) = sorted(tokens)
    least, most = tokens == low, tokens == high
    yield f"After {low:.2f} million tokens softmax", (window > softmax)[least].all()
    narrow, *_, wide = (memory - softmax)[least]
    yield "it is behind in the narrowest model and ahead in the widest", narrow > 0 > wide
    gaps = (softmax - window)[most]
    yield f"after {high:.2f} million the window is ahead", (gaps > 0).all()
    yield f"ahead by {min(gaps):.3f} to {max(gaps):.3f} nats", True
    yield (
        f"behind softmax after {high:.2f} million tokens at every width",
        (memory > softmax)[most].all(),
    )
    for name, words in {"error": "fits with", "error_of_widest": "predicts them with"}.items():
        errors = [x[name] for x in stored.values()]
        ends = f"{min(errors):.3f} to {max(errors):.3f} nats"
        yield f"{words} a mean error of {ends}", True
    yield "E, whose fit lies at its lower bound", all(x["fit"][0] < 0.011 for x in stored.values())


def noise_claims():
    """Yields sentences about what moves a result, likewise."""
    stored = json.loads((noise.RESULTS / "noise.json").read_text())
    of, rules = stored["sources"], stored["false winners"]
    sizes = {name: {x: d[0] for x, d in y["NLL"].items()} for name, y in of.items()}
    ratios = {
        title: {name: (x[title] / x["all sources"]) ** 2 for name, x in sizes.items()}
        for title in next(iter(sizes.values()))
    }
    mean = {title: float(np.exp(np.mean(np.log([*x.values()])))) for title, x in ratios.items()}
    alone = [mean[f"{x} alone"] for x in ("initialisation", "order of batches", "dropout")]
    said = "initialisation alone has {:.2f} times the variance of all three, the order of the"
    yield said.format(alone[0]), True
    yield "batches {:.2f} times and dropout {:.2f} times".format(*alone[1:]), True
    rounding = ratios["rounding alone"]
    low, high = (pick(rounding, key=rounding.get) for pick in (min, max))
    yield f"Rounding alone has {mean['rounding alone']:.2f} times this variance, from", True
    yield f"from {rounding[low]:.0%} in {low} to {rounding[high]:.0%} in {high} attention", True
    near = [x["dropout alone"] / x["rounding alone"] for x in sizes.values()]
    yield f"{min(near):.1f} to {max(near):.1f} times as far as rounding does", True
    one = rules["one seed each, apart by more than 0.01 nats"]
    best = rules["best of three each, apart by more than 0.01 nats"]
    welch = rules["means of three, Welch's t, p < 0.05"]
    yield f"one seed each finds a winner in {one:.0%} of the pairs, the best of three in", True
    yield f"the best of three in {best:.0%}, Welch's t on three seeds in {welch:.0%}", True
    seeds = [x["seeds"] for x in stored["rows"].values()]
    far, near = (f"{min(x)} to {max(x)}" for x in zip(*seeds, strict=True))
    yield f"A difference of 0.01 nats from base takes {far} seeds of each row", True
    yield f"0.05 nats {near}.", True
    yield (
        "no mechanism is significantly noisier",
        all(x["p"] > 0.05 for x in stored["rows"].values()),
    )


def recipe_claims():
    """Yields sentences about recipes, as (sentence, whether it is true of the stored runs)."""
    ratio = cost("multi30k-paper", "best", "flops") / cost("table3-multi30k", "base", "flops")
    hours = ratio * cost("table3-multi30k", "base", "training_seconds") / 2 / 3600
    for name, part in (("quick", 1 / 6), ("hour", 1), ("best", 2)):
        share = cost("multi30k-paper", name, "flops") / cost("multi30k-paper", "best", "flops")
        yield f"recipe {name}", 0.7 * part < share * hours < 1.4 * part
    minutes = cost("multi30k-paper", "best", "training_seconds") / 60
    yield f"a seed of `best` took {minutes:.1f} minutes", True
    raw, lower = (mean(f"{x}-paper", "best", "BLEU Moses") for x in ("multi30k", "multi30k_lower"))
    yield f"It is {raw - lower:.1f} BLEU below `best` on raw text", True


def claims():
    """Yields sentences of both pages as (sentence, whether it is true of the stored numbers)."""
    dropped = "D:P_drop=0.0"
    yield (
        "has a worse perplexity, but not a worse BLEU",
        (gap("table3-hour", dropped, "base", "PPL") > 0 <= gap("table3-hour", dropped, "base")),
    )
    for group in "AB":
        ours, papers = (
            [name for name in sorted(rows_of("table3-hour"), key=key) if name[0] == group]
            for key in (
                lambda name: mean("table3-hour", name),
                lambda name: rows_of("table3-hour")[name]["paper"]["BLEU"],
            )
        )
        yield "of groups A and B have the paper's order", ours == papers
    real = {name: mean("table3-multi30k", name) for name in rows_of("table3-multi30k")}
    del real["big"]
    yield "the one without dropout is the best", max(real, key=real.get) == dropped
    parts = {name: mean("modifications-hour", name) for name in rows_of("modifications-hour")}
    losses = {name: mean("modifications-hour", name, "PPL") for name in parts}
    best = max(parts, key=parts.get), min(losses, key=losses.get)
    p = [rows_of("modifications-hour")["QK-norm"][f"{x}_difference"]["p"] for x in ("PPL", "BLEU")]
    not_significant = best == ("QK-norm", "QK-norm") and min(p) >= 0.05
    yield "best perplexity and BLEU, though not significantly better than base's", not_significant
    simpler = [row for name, row in rows_of("simplifications-demo").items() if name != "base"]
    p = [row[f"{metric}_difference"]["p"] for row in simpler for metric in ("PPL", "BLEU")]
    yield "At this scale, no row differs significantly from base", min(p) >= 0.05
    tuned = rows_of("optimizers-demo")
    gains = {name: gap("optimizers-demo", name, "base") for name in tuned}
    starred = {n for n, row in tuned.items() if n != "base" and row["BLEU_difference"]["p"] < 0.05}
    yield f"gains {gains['AdamW']:.1f} BLEU over base's Adam", True
    yield (
        f"of the steps gains {gains['WSD']:.1f}; of all differences",
        starred == {"AdamW"},
    )
    rates = {name: row["chosen"]["lr_scale"] for name, row in tuned.items()}
    yield "whose best rate is three times as high", 3 < rates["Muon"] / rates["base"] < 3.5
    experts = {name: gap("mixture-demo", name, "base") for name in rows_of("mixture-demo")}
    of_rows = {n: x["BLEU_difference"] for n, x in rows_of("mixture-demo").items() if n != "base"}
    proven = [name for name, difference in of_rows.items() if difference["p"] < 0.05]
    yield f"They gain {experts['mixture']:.1f} BLEU over base", True
    yield (
        "differences from base, only the last is significant",
        (proven == ["parameters of mixture"]),
    )
    gains_of_width = experts["FLOPs of mixture"], experts["parameters of mixture"]
    yield (
        "gain {:.1f} BLEU with the FLOPs of the mixture and {:.1f} with".format(*gains_of_width),
        True,
    )
    yield f"the FLOPs of base lose {-experts['mixture, FLOPs of base']:.1f} BLEU", True
    stories, kinds = "memory_networks-diagnostic", [f"accuracy@test{i}" for i in (1, 2, 3)]
    of_kinds = {name: [mean(stories, name, kind) for kind in kinds] for name in rows_of(stories)}
    one, two, three = (of_kinds[name] for name in ("1 hop", "2 hops", "3 hops"))
    yield (
        "with one hop (Sukhbaatar et al. 2015) answers the first kind",
        (one[0] > 99 and max(one[1:]) < 50),
    )
    yield (
        "and with two hops all kinds. A third hop gains nothing",
        (min(two) > 94 and max(np.subtract(three, two)) < 0.1),
    )
    others = [x for name in ("Transformer", "LSTM") for x in of_kinds[name]]
    flops = [cost(stories, name, "flops") for name in ("LSTM", "2 hops")]
    yield (
        f"give {min(others):.0f} to {max(others):.0f}% of the answers, with more than 100 times "
        "the FLOPs of two hops",
        flops[0] > 100 * flops[1],
    )
    diagnostic = "neural_gpu-diagnostic"
    folders = diagnostic, f"neural_gpu_copy/{diagnostic}", f"neural_gpu_addition/{diagnostic}"
    reverse, copy, addition = (
        {
            name: [mean(folder, name, f"accuracy@test{n}x") for n in (2, 4)]
            for name in rows_of(folder)
        }
        for folder in folders
    )
    perfect = [name for name, (_, four) in copy.items() if four == 100]
    yield "only the Neural GPU copies at four times the length", perfect == ["Neural GPU"]
    yield (
        "an accuracy of {:.0f}% at twice and {:.0f}% at four".format(*addition["Neural GPU"]),
        all(max(addition, key=lambda name: addition[name][i]) == "Neural GPU" for i in (0, 1)),
    )
    yield (
        "The LSTM is the best at reversing longer inputs",
        all(max(reverse, key=lambda name: reverse[name][i]) == "LSTM" for i in (0, 1)),
    )
    cells = {name: mean("factorised-demo", name) for name in rows_of("factorised-demo")}
    yield f"0.21 million parameters it has {cells['LSTM, narrower']:.1f} BLEU", True
    yield f"0.20 has {cells['F-LSTM']:.1f}, and two groups", True
    yield f"0.24 have {cells['G-LSTM, 2 groups']:.1f}. The whole LSTM has {cells['LSTM']:.1f}", True
    losses = {name: mean("optimizers-demo", name, "PPL") for name in tuned}
    yield (
        "has the lowest perplexity and the highest BLEU",
        min(losses, key=losses.get) == max(gains, key=gains.get) == "Muon",
    )
    compiled = [cost("optimizers-demo", name, "compiled_flops") for name in ("Muon", "base")]
    yield "for twice the compiled FLOPs", 1.9 < compiled[0] / compiled[1] < 2.1
    yield "Lion is far behind", gains["Lion"] < -10
    base, dot, additive = "Transformer base", "LSTM, dot", "LSTM, additive"
    flops = {name: cost("table2-hour", name, "flops") for name in (base, dot, additive)}
    yield f"with {flops[dot] / flops[base]:.0%} of its FLOPs for dot products", True
    yield "and as many for additive attention", abs(flops[additive] / flops[base] - 1) < 0.02
    yield f"and is {-gap('table2-hour', 'ConvS2S', base, part='untuned'):.0f} BLEU behind", True
    lead, later = gap("table2-hour", dot, base), gap("longer/table2-hour", dot, base)
    yield f"lead, {lead:.1f} BLEU after 1,280 steps, is {later:.1f} BLEU here", True
    trees = rows_of("table4-treebank").values()
    yield "Both rows chose the lower", {row["chosen"]["lr_scale"] for row in trees} == {1.0}
    lstm, transformer = (
        [cost("table4-treebank", row, name) for name in ("parameters", "flops")]
        for row in ("LSTM with attention", "Transformer")
    )
    yield "with fewer parameters and FLOPs", all(map(operator.lt, lstm, transformer))
    recalled = {
        n: [x["accuracy"] for x in row["runs"]] for n, row in rows_of("recall-diagnostic").items()
    }
    base = recalled["softmax, d_k 8"]
    yield (
        f"of the twelve seeds of the first row, {sum(x > 99 for x in base)} find it",
        (len(base) == 12 and sum(x < 13.5 for x in base) == 3),
    )
    yield (
        "softmax and gated linear attention find the solution with every seed",
        all(min(recalled[f"{name}, convolutions"]) > 99.9 for name in ("softmax", "gated linear")),
    )
    hybrids = rows_of("hybrids-diagnostic").items()
    solved = {name: sum(run["accuracy"] > 99 for run in row["runs"]) for name, row in hybrids}
    yield "a softmax layer find the value with every seed", solved["window, softmax last"] == 3
    last = [solved[f"{name}, softmax last"] for name in ("linear", "delta")]
    yield "followed by a softmax layer, with none", last == [0, 0]
    yield (
        "two of three seeds, and softmax in all four layers with none",
        (solved["linear and softmax"] == 2 and solved["softmax"] == 0),
    )
    longest = "accuracy@test8x"
    at_8 = {
        name: mean("lengths-diagnostic", name, longest) for name in rows_of("lengths-diagnostic")
    }
    yield (
        "keeps {alibi:.1f}%, relative positions {relative:.1f}% and rotary positions {rotary:.0f}%."
        " Sinusoids do not find the solution at any length".format(**at_8),
        at_8["sinusoid"] < 60,
    )
    dyck = {name: mean("lengths_dyck-diagnostic", name, longest) for name in at_8}
    yield (
        "ALiBi has {alibi:.0f}%, relative positions {relative:.0f}%, no positions {none:.0f}%, "
        "rotary {rotary:.0f}% and sinusoids {sinusoid:.0f}%".format(**dyck),
        True,
    )
    two = [mean("induction-diagnostic", row, "accuracy") for row in INDUCTION]
    yield "reach {:.1f}% with relative positions, but {:.0f}% with sinusoids".format(*two), True
    for keys, sentence in ((8, "reaches an accuracy of 34%"), (4, "has an accuracy of 52%")):
        guess = sum(1 / (keys - i) for i in range(keys)) / keys
        yield sentence, f"{guess:.0%}" in sentence
    speeds = json.loads((readme.RESULTS / "bench_attention" / "attention.json").read_text())
    at = {
        name: next(x["seconds"] for x in speeds["mechanisms"][name]["at"] if x["n"] == 2048)
        for name in ("scaled_dot_product", "softmax1")
    }
    ratio = at["scaled_dot_product"] / at["softmax1"]
    yield f"and was {ratio:.1f} times as fast there", ratio < mechanisms.FASTER
    yield f"if it is more than {mechanisms.FASTER} times as fast at 2,048", True

    decisions = json.loads((readme.RESULTS / "decisions" / "decisions.json").read_text())
    every, of_recall, all_text, of_text, paper, of_hour = decisions.values()
    quarter, half, *_ = shares = [x["PPL"]["share"] for x in every.values()]
    yield f"has {quarter:.0f}% of the pairs in order by perplexity, after half", True
    yield f"of them {half:.0f}%. The accuracy of whole runs", True
    yield f"minimal pairs has {shares[-1]:.0f}%.", True
    recall = of_recall["recall, accuracy, mean of 3 seeds"]
    yield f"than a coin: {recall['PPL']['share']:.0f}% with three", recall["PPL"]["low"] < 50
    yield "for twice the FLOPs of the target's runs", 2 < recall["of_target"] < 2.5
    stopped, _, _, _, short, *_ = all_text.values()
    yield f"a quarter of its steps has {stopped['PPL']['share']:.0f}% of its pairs", True
    coin = short["PPL"]["low"] < 50 < short["PPL"]["high"]
    yield f"have {short['PPL']['share']:.0f}%, and their interval includes a coin", coin
    study, by_pairs = (of_text[f"attention, demo, {x}"] for x in ("PPL", "minimal pairs"))
    yield (
        f"has {study['PPL']['share']:.0f}% of the pairs in order by perplexity, and "
        f"{by_pairs['PPL']['share']:.0f}% by minimal pairs, for {study['of_target']:.0%} of the",
        True,
    )
    yield f"recall has {of_text['recall, accuracy']['PPL']['share']:.0f}%. No sum", True
    best, (quarter, *_) = [*of_text.values()][-1], of_text.values()
    yield (
        f"the best of six has {best['PPL']['share']:.0f}%, for {best['of_target']:.0%} of the",
        best["PPL"]["share"] < quarter["PPL"]["share"] and "the best of 6" in [*of_text][-1],
    )
    whole = paper["1,280 of 1,280 steps, PPL"]
    yield (
        f"a millionth of the FLOPs of the paper's base, has {whole['PPL']['share']:.0f}%",
        0.5e-6 < whole["of_target"] < 1.5e-6,
    )
    demo, quarter = "preset demo (half as wide), PPL", "320 of 1,280 steps, PPL"
    for rows, narrow, short in (
        (paper, "have {:.0f}% of the paper's pairs in order", "after a quarter {:.0f}%."),
        (of_hour, "they have {:.0f}% in order", "and after a quarter {:.0f}%."),
    ):
        shares = [rows[name]["PPL"]["share"] for name in (demo, quarter)]
        yield narrow.format(shares[0]), shares[0] > shares[1]
        yield short.format(shares[1]), rows[demo]["flops"] < 1.2 * rows[quarter]["flops"]
    text = paper["preset multi30k, PPL"]
    yield f"multi30k has {text['PPL']['share']:.0f}% of the paper's pairs", text["PPL"]["low"] < 50
    yield f"in order, for {text['flops'] / paper[demo]['flops']:.0f} times the FLOPs of demo", True

    grids = json.loads((readme.RESULTS / "scale" / "agreement.json").read_text())
    text = {
        f"{pairs}, {epochs}": grids[f"text, d_model 32, {pairs} pairs, {epochs} epochs"]
        for pairs, epochs in (("12,000", 6), ("1,200", 18), ("4,800", 18), ("12,000", 18))
    }
    many, few, middle, longest = text.values()
    tokens = [x["tokens_per_parameter"] for x in text.values()]
    yield f"With {tokens[0]:.1f} tokens for each parameter", tokens[0] == tokens[3]
    yield f"With {tokens[1]:.2f} tokens and 18 epochs it overfits", True
    yield f"With {tokens[2]:.1f} tokens and 18 epochs, with three", middle["seeds"] == [3, 12]
    of_rows = [x["wrong"]["PPL"] for x in (many, few, middle, grids["demo"], longest)]
    dropless, sharp, one_head = (
        [len(x[row]) for x in of_rows]
        for row in ("D:P_drop=0.0", "D:eps_ls=0.0", "A:h=1,d_k=512,d_v=512")
    )
    yield (
        f"is on the wrong side of {dropless[0]} other rows, in `demo` of {dropless[3]}.",
        (dropless[4] == dropless[0]),
    )
    yield f"without label smoothing is on the wrong side of {sharp[1]}.", True
    yield (
        "dropout is on the right side of all rows, the row without label smoothing of all but one",
        ((dropless[2], sharp[2]) == (0, 1)),
    )
    right = middle["agreement"]["C, D"]["PPL"]
    yield f"have {right['ordered']} of {right['pairs']} pairs in order, with a tau of", True
    for part, metric, said in (
        ("C, D", "PPL", "with a tau of {:.2f} ({:.2f} to {:.2f})"),
        ("all", "BLEU", "its tau is {:.2f} ({:.2f} to {:.2f})"),
        ("A, B, E", "PPL", "have a tau of PPL of {:.2f} ({:.2f} to {:.2f})"),
    ):
        x = middle["agreement"][part][metric]
        yield said.format(x["tau"], *x["interval"]), True
    everything = middle["agreement"]["all"]["PPL"]
    ordered = longest["agreement"]["all"]["PPL"]["ordered"]
    yield f"have {everything['ordered']} of {everything['pairs']} there, and {ordered} with", True
    captions = grids["multi30k, d_model 32, 29,000 pairs, 6 epochs"]
    every, held_out = (captions["agreement"][part]["PPL"] for part in ("all", "A, B, E"))
    yield f"with {captions['tokens_per_parameter']:.1f} tokens for each parameter and 6", True
    yield f"has {every['ordered']} of {every['pairs']} pairs in order, with a tau of", True
    yield f"with a tau of {every['tau']:.2f}. Groups A, B and E", True
    yield f"have {held_out['ordered']} of {held_out['pairs']}, and a tau of", True
    yield (
        f"of {held_out['tau']:.2f}, where {scale.attainable('PPL', 'ABE'):.2f} can be expected",
        True,
    )
    dropped = captions["wrong"]["PPL"]["D:P_drop=0.0"]
    yield f"the row without dropout, on the wrong side of {len(dropped)} rows", True
    short = grids["text, d_model 64, 5,600 pairs, 6 epochs"]
    same = f"{short['tokens_per_parameter']:.2f}" == f"{tokens[1]:.2f}"
    yield "6 epochs of as many tokens a parameter as in the smallest grid are too few", same
    tau = short["agreement"]["all"]["PPL"]["tau"]
    yield f"wrong side of {len(short['wrong']['PPL']['C:N=2'])} rows, and tau is {tau:.2f}.", True
    wrong = everything["pairs"] - everything["ordered"]
    yield f"{one_head[2]} of the {wrong} pairs that are not in order are of the row with one", True
    always = all(x["wrong"]["PPL"]["A:h=1,d_k=512,d_v=512"] for x in grids.values())
    yield "head, which is on the wrong side of some rows in every grid", always
    lines = (readme.RESULTS / "significance" / "table.md").read_text().splitlines()[4:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    of = {
        seeds: [float(x[6]) for x in cells if x[:2] == ["equal", seeds]]
        for seeds in ("3 + 3", "3 + 12")
    }
    said = [f"{min(x):.0f} to {max(x):.0f}%" for x in of.values()]
    yield f"find {said[1]} of the differences of 3 BLEU", True
    planned = (readme.RESULTS / "significance" / "plan.txt").read_text()
    (expected,) = re.findall(r"^3 +3 .* ([\d.]+) +([\d.]+)$", planned, re.M)
    yield "expects from Table 3 that {} nats and {} BLEU are found".format(*expected), True
    made = (readme.RESULTS / "modifications-hour" / "table.md").read_text()
    (least,) = re.findall(r"differences of ([\d.]+) nats per token \(PPL\), ([\d.]+) BLEU", made)
    yield "The tests of the finished table find {} nats and {} BLEU.".format(*least), True
    yield f"3 + 3 seeds {said[0]}: a missing star", max(float(x[3]) for x in cells) <= 5


@pytest.mark.full
def test_what_the_pages_say_of_stored_results_is_true():
    written = " ".join(RESULTS.read_text().split())
    for sentence, true in (
        *claims(),
        *treebank_claims(),
        *transfer_claims(),
        *scaling_claims(),
        *language_model_claims(),
        *decoder_claims(),
        *noise_claims(),
    ):
        assert sentence in written, sentence
        assert true, sentence


def test_what_is_said_of_recipes_is_true_of_their_stored_runs():
    sources = RESULTS.read_text() + (ROOT / "experiments" / "multi30k.py").read_text()
    written = " ".join(sources.split())
    for sentence, true in recipe_claims():
        assert sentence in written or sentence.startswith("recipe"), sentence
        assert true, sentence
    (grammar,) = readme._results(readme.RESULTS / "grammar")
    spent = grammar["training_seconds"] + grammar["overhead_seconds"] + grammar["scoring_seconds"]
    assert "in four minutes on two CPU cores" in README.read_text()
    assert spent < 4.5 * 60


def test_the_readme_answers_with_the_stored_agreement():
    path = readme.RESULTS / "scale" / "agreement.json"
    grids = {name: x["agreement"]["all"]["PPL"] for name, x in json.loads(path.read_text()).items()}
    written = " ".join(README.read_text().split())
    hour, ordered = grids["hour"], {name: x["ordered"] for name, x in grids.items()}
    for sentence in (
        f"of the {hour['pairs']} pairs of rows whose PPL differs by 0.1 or more in the paper, "
        f"{ordered['hour']} have its order",
        f"tau is {hour['tau']:.2f}, where {scale.attainable('PPL', ''):.2f} can be expected at",
        f"in 15 minutes, has {ordered['demo']} of these pairs in order",
        f"16 features in place of 8, {ordered['demo, 4 heads']};",
        f"with a quarter of its steps, {ordered['demo, quarter of the steps']}.",
        f"tuned for every row of `hour` gains nothing ({ordered['hour, tuned']})",
    ):
        assert sentence in written, sentence
    assert ordered["hour, tuned"] <= ordered["hour"]


def test_kernels_are_said_of_mechanisms_that_have_one():
    sentence = " ".join(RESULTS.read_text().split()).split("These mechanisms have kernels:")[1]
    named = [word for word in re.findall(r"\w+", sentence.split(".")[0]) if word in MECHANISMS]
    have = [name for name in MECHANISMS if "fused" in vars(type(build(name)))]
    assert sorted(named) == sorted(have)
    assert not (ROOT / "t2t_jax" / "ops" / "feed_forward.py").exists()
    assert "ReLU" not in README.read_text()


def spread(folder, row, metric="BLEU", digits=1):
    x = rows_of(folder)[row][metric]
    return f"{x['mean']:.{digits}f} ± {x['deviation']:.{digits}f}"


def expectations():
    """Yields sentences of the docstrings of experiments, as (file, sentence)."""
    base, big = (
        "{:.1f}, {:.1f} and {:.1f}".format(
            *(mean(f"table3-{preset}", row) for preset in ("demo", "hour", "multi30k"))
        )
        for row in ("base", "big")
    )
    yield "table3", f"base reaches {base} BLEU, and big {big};"
    names = "scaled dot product", "talking heads", "local", "linear", "dot product"
    said = "base reaches {} BLEU, talking heads {}, local attention {}, linear {}, unscaled dot "
    said = said.format(*(spread("attention-demo", name) for name in names[:-1]))
    yield "attention", said + f"products {spread('attention-demo', names[-1])};"
    both = (f"{name} {spread('attention_flops-demo', name)}" for name in ("linear", "delta"))
    yield "attention", ", ".join(both)
    names = "Transformer base", "LSTM", "LSTM, dot", "ConvS2S"
    said = (
        "base reaches {} BLEU, the LSTM without attention {}, with dot-product attention {}, and "
    )
    yield "table2", (said + "ConvS2S {}").format(*(spread("table2-hour", name) for name in names))
    names = "base", "QK-norm", "modern", "no positions", "post-norm"
    said = "base reaches {} BLEU, QK-norm {}, the last row {}, no positions {}, post-norm {}."
    found = (spread("modifications-hour", name) for name in names)
    yield "modifications", said.format(*found)
    F1 = [mean("table4-treebank", x, "F1") for x in ("Transformer", "LSTM with attention")]
    yield "table4", f"an F1 of {F1[0]:.1f} for the Transformer, {F1[1]:.1f} for the LSTM"
    names = "decoder, causal", "encoder, masked", "encoder, masked, 3 x"
    others = [spread("language_model-hour", name, "PPL") for name in names]
    said = "{} for the decoder and {} for the encoder, {} after three times".format(*others)
    names = "base", "A:decoder_attention=differential", "A:decoder_attention=linear"
    expected = "a perplexity of {} for base, {} for differential attention, {} for linear attention"
    yield (
        "language_model",
        expected.format(*(spread("decoders-text", name, "PPL") for name in names)),
    )
    whole = spread("language_model-hour", "both", "PPL", 2)
    yield "language_model", f"a perplexity of {whole} for the encoder-decoder, {said}"


@pytest.mark.full
def test_what_experiments_expect_is_what_is_stored():
    for name, sentence in expectations():
        text = " ".join((ROOT / "experiments" / f"{name}.py").read_text().split())
        assert sentence in text, (name, sentence)


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "sentence", "minutes", "folder", "share"),
    [
        ("table3", "The first takes 15 minutes on 2 CPU cores", 15, "table3-demo", 1),
        ("table3", "the second 20 minutes a seed", 20, "table3-hour", 20 / 69),
        ("table3", "the third 5 hours", 300, "table3-multi30k", 1),
        ("attention", "the first takes about 85 minutes", 85, "attention-demo", 1),
        ("attention", "the second 20", 20, "attention_flops-demo", 1),
        ("recall", "the first takes about 30 minutes", 30, "recall-diagnostic", 1),
        ("recall", "the second 15", 15, "hybrids-diagnostic", 1),
        ("recall", "the third 3", 3, "induction-diagnostic", 1),
        ("lengths", "Each takes about five minutes", 5, "lengths-diagnostic", 1),
        ("lengths", "Each takes about five minutes", 5, "lengths_dyck-diagnostic", 1),
        ("modifications", "10 minutes on 2 CPU cores", 10, "modifications-hour", 1 / 3),
        ("language_model", "The first takes 4 minutes", 4, "language_model-hour", 1 / 3),
        ("language_model", "It takes 100 minutes on 2 CPU cores", 100, "decoders-text", 1),
        ("table4", "of the second takes 20 minutes on one CPU core", 20, "table4-treebank", 1 / 4),
        ("table2", "The first takes about 12 minutes", 12, "table2-hour", 6 / 44),
    ],
)  # fmt: skip
def test_experiments_take_as_long_as_they_say(name, sentence, minutes, folder, share):
    """By the times of their stored runs on two cores; a third is for other machines and pauses."""
    assert sentence in " ".join((ROOT / "experiments" / f"{name}.py").read_text().split())
    runs = readme._results(readme.RESULTS / folder)
    parts = "training_seconds", "overhead_seconds", "scoring_seconds"
    spent = sum(run[part] for run in runs for part in parts) / 2 / 60 * share
    assert 2 / 3 < minutes / spent < 3 / 2


def test_the_first_command_takes_as_long_as_the_readme_says():
    time = (readme.RESULTS / "bench" / "table3.txt").read_text()
    minutes, seconds = map(int, re.fullmatch(r"real  (\d+) min (\d+) s\n", time).groups())
    assert f"{minutes + seconds / 60:.0f} minutes on two CPU cores" in README.read_text()
