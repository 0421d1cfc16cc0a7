"""JoeyNMT: its model and its loss, in its own training step's order; its greedy and beam search."""

from types import SimpleNamespace

import numpy as np
import torch
from joeynmt.model import build_model
from joeynmt.search import search
from joeynmt.vocabulary import Vocabulary

from t2t_jax.bench import work
from t2t_jax.bench.contenders import serve
from t2t_jax.tokens import BOS, EOS, PAD, UNK

SPECIALS = UNK, PAD, BOS, EOS  # in JoeyNMT's order


def built(s):
    """The model, and what turns our ids into JoeyNMT's."""
    named = dict(unk="<unk>", pad="<pad>", bos="<s>", eos="</s>", sep="")
    symbols = SimpleNamespace(lang_tags=[], sep_id=None)
    for i, (name, text) in enumerate(named.items()):
        setattr(symbols, f"{name}_token", text)
        setattr(symbols, f"{name}_id", i if text else None)
    vocabulary = Vocabulary([str(i) for i in range(4, s.V)], symbols)
    f = work.facts(s)
    half = dict(
        type="transformer", num_layers=f["N"], num_heads=f["h"], hidden_size=f["d_model"],
        ff_size=f["d_ff"], dropout=f["P_drop"], layer_norm="post",
        embeddings=dict(embedding_dim=f["d_model"], scale=True),
    )  # fmt: skip
    config = dict(encoder=half, decoder=half, tied_embeddings=True, tied_softmax=True)
    model = build_model(config, vocabulary, vocabulary)
    model.loss_function = "crossentropy", f["eps_ls"]
    order = np.arange(s.V)
    order[list(SPECIALS)] = range(4)
    return model, lambda ids: torch.from_numpy(order[ids])


def source_of(source):
    mask = source != SPECIALS.index(PAD)
    mask[:, 0] = True  # a row that is all padding attends to something, or it would be NaN
    return dict(src=source, src_mask=mask[:, None], src_length=mask.sum(1))


def train(size, batch_tokens):
    s = work.size(size, int(batch_tokens))
    model, ours = built(s)
    optimizer = torch.optim.Adam(model.parameters(), 1e-4, (0.9, 0.98), 1e-9)
    model.train()
    batches = []
    for b in work.batches(s):
        target = ours(b["target"])
        given = torch.roll(target, 1, 1)
        given[:, 0] = SPECIALS.index(BOS)
        shown = (given != SPECIALS.index(PAD))[:, None]
        sides = dict(trg_input=given, trg=target, trg_mask=shown)
        batches.append(source_of(ours(b["source"])) | sides)

    def round_():
        for b in batches:
            loss, *_ = model(return_type="loss", **b)
            (loss / b["trg_mask"].sum()).backward()
            optimizer.step()
            optimizer.zero_grad()
        assert loss.isfinite()

    return round_


def translate(size, beam):
    s = work.size(size, 2048)
    model, ours = built(s)
    model.eval()
    sentences = ours(np.pad(work.sentences(s.V), ((0, 0), (0, 1)), constant_values=EOS))

    def round_():
        for rows in sentences.split(work.ROWS):
            batch = SimpleNamespace(**source_of(rows), has_trg=False)
            n = work.LENGTH
            out, _, _ = search(model, batch, n, int(beam), 0.6, min_output_length=n)
            assert out.shape[1] >= n

    return round_


if __name__ == "__main__":
    serve({"train": train, "translate": translate}, "joeynmt")
