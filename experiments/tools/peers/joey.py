"""JoeyNMT: its model and loss in the order of its own training step; its greedy and beam search."""

from types import SimpleNamespace

import numpy as np
import torch
from joeynmt.model import build_model
from joeynmt.search import search
from joeynmt.vocabulary import Vocabulary
from serve import serve

from t2t_jax.bench import workload
from t2t_jax.tokens import BOS, EOS, PAD, UNK

SPECIALS = UNK, PAD, BOS, EOS  # our special ids in the order of JoeyNMT's


def build(w):
    """Returns the model, and a function that maps our token ids to JoeyNMT's."""
    specials = dict(unk="<unk>", pad="<pad>", bos="<s>", eos="</s>", sep="")
    symbols = SimpleNamespace(lang_tags=[], sep_id=None)
    for i, (name, text) in enumerate(specials.items()):
        setattr(symbols, f"{name}_token", text)
        setattr(symbols, f"{name}_id", i if text else None)
    vocabulary = Vocabulary([str(i) for i in range(4, w.V)], symbols)
    p = workload.hyperparameters(w)
    stack = dict(
        type="transformer", num_layers=p["N"], num_heads=p["h"], hidden_size=p["d_model"],
        ff_size=p["d_ff"], dropout=p["P_drop"], layer_norm="post",
        embeddings=dict(embedding_dim=p["d_model"], scale=True),
    )  # fmt: skip
    config = dict(encoder=stack, decoder=stack, tied_embeddings=True, tied_softmax=True)
    model = build_model(config, vocabulary, vocabulary)
    model.loss_function = "crossentropy", p["eps_ls"]
    order = np.arange(w.V)
    order[list(SPECIALS)] = range(4)
    return model, lambda ids: torch.from_numpy(order[ids])


def source_side(source):
    """Returns the source's part of a JoeyNMT batch."""
    mask = source != SPECIALS.index(PAD)
    mask[:, 0] = True  # attention over a row of padding alone would be NaN
    return dict(src=source, src_mask=mask[:, None], src_length=mask.sum(1))


def train(size, batch_tokens):
    w = workload.workload(size, int(batch_tokens))
    model, to_joey = build(w)
    optimizer = torch.optim.Adam(model.parameters(), 1e-4, (0.9, 0.98), 1e-9)
    model.train()
    batches = []
    for batch in workload.batches(w):
        target = to_joey(batch["target"])
        target_in = torch.roll(target, 1, 1)
        target_in[:, 0] = SPECIALS.index(BOS)
        mask = (target_in != SPECIALS.index(PAD))[:, None]
        target_side = dict(trg_input=target_in, trg=target, trg_mask=mask)
        batches.append(source_side(to_joey(batch["source"])) | target_side)

    def run_round():
        for batch in batches:
            loss, *_ = model(return_type="loss", **batch)
            (loss / batch["trg_mask"].sum()).backward()
            optimizer.step()
            optimizer.zero_grad()
        assert loss.isfinite()

    return run_round


def translate(size, beam):
    w = workload.workload(size, 2048)
    model, to_joey = build(w)
    model.eval()
    sources = to_joey(np.pad(workload.sentences(w.V), ((0, 0), (0, 1)), constant_values=EOS))

    def run_round():
        for rows in sources.split(workload.ROWS):
            batch = SimpleNamespace(**source_side(rows), has_trg=False)
            n = workload.LENGTH
            out, _, _ = search(model, batch, n, int(beam), 0.6, min_output_length=n)
            assert out.shape[1] >= n

    return run_round


if __name__ == "__main__":
    serve({"train": train, "translate": translate}, "joeynmt")
