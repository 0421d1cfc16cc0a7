"""OpenNMT-py: its model and loss in a plain training step; its translator."""

import numpy as np
import onmt.opts
import pyonmttok
import torch
from onmt.constants import DefaultTokens
from onmt.model_builder import build_base_model
from onmt.translate import GNMTGlobalScorer
from onmt.translate.translator import Translator
from onmt.utils.parse import ArgumentParser
from serve import serve
from torch import nn

from t2t_jax.bench import workload
from t2t_jax.tokens import BOS, EOS, PAD


def build(w):
    """Returns the model and its vocabularies, which use our token ids."""
    p = workload.hyperparameters(w)
    parser = ArgumentParser()
    onmt.opts.model_opts(parser)
    options, _ = parser.parse_known_args([])
    vars(options).update(
        encoder_type="transformer", decoder_type="transformer", enc_layers=p["N"],
        dec_layers=p["N"], hidden_size=p["d_model"], enc_hid_size=p["d_model"],
        dec_hid_size=p["d_model"], word_vec_size=p["d_model"], src_word_vec_size=p["d_model"],
        tgt_word_vec_size=p["d_model"], heads=p["h"], transformer_ff=p["d_ff"],
        position_encoding=True, share_embeddings=True, share_decoder_embeddings=True,
        dropout=[p["P_drop"]], attention_dropout=[0.0], optim="adam", update_vocab=False,
        freeze_word_vecs_enc=False, freeze_word_vecs_dec=False, param_init=0.0,
        param_init_glorot=True, model_dtype="fp32", apex_opt_level="", quant_layers=[],
        parallel_mode="data_parallel", lora_layers=[], world_size=1,
    )  # fmt: skip
    specials = [DefaultTokens.PAD, DefaultTokens.BOS, DefaultTokens.EOS, DefaultTokens.UNK]
    names = [*specials, *(str(i) for i in range(4, w.V))]
    vocabulary = pyonmttok.build_vocab_from_tokens(names, special_tokens=specials)
    assert len(vocabulary) == w.V
    assert vocabulary[DefaultTokens.PAD] == PAD
    vocabularies = dict(
        src=vocabulary, tgt=vocabulary, data_task="seq2seq", decoder_start_token=DefaultTokens.BOS
    )
    model = build_base_model(options, vocabularies)
    for name, x in model.named_parameters():  # the builder leaves this to training
        if x.dim() > 1:
            nn.init.xavier_uniform_(x)
        elif name.endswith("bias"):
            nn.init.zeros_(x)
    return model, vocabularies


def train(size, batch_tokens):
    w = workload.workload(size, int(batch_tokens))
    model, _ = build(w)
    model.train()
    eps_ls = w.c.training.eps_ls
    criterion = nn.CrossEntropyLoss(ignore_index=PAD, reduction="sum", label_smoothing=eps_ls)
    optimizer = torch.optim.Adam(model.parameters(), 1e-4, (0.9, 0.98), 1e-9)
    batches = []
    for batch in workload.batches(w):
        source, target = (torch.from_numpy(batch[k]).long() for k in ("source", "target"))
        with_bos = torch.cat([torch.full((len(target), 1), BOS), target], 1)
        lengths = (source != PAD).sum(1)
        source = source[:, : lengths.max(), None]  # OpenNMT-py expects no column of padding alone
        batches.append((source, with_bos[:, :, None], lengths, target))

    def run_round():
        for source, with_bos, lengths, target in batches:
            optimizer.zero_grad(set_to_none=True)
            out, _ = model(source, with_bos, lengths)
            loss = criterion(model.generator(out).flatten(0, 1), target.flatten())
            (loss / (target != PAD).sum()).backward()
            optimizer.step()
        assert loss.isfinite()

    return run_round


def translate(size, beam):
    w = workload.workload(size, 2048)
    model, vocabularies = build(w)
    model.eval()
    n = workload.LENGTH
    translator = Translator(
        model, vocabularies, min_length=n, max_length=n, max_length_ratio=0, beam_size=int(beam),
        global_scorer=GNMTGlobalScorer(0.6, 0.0, "wu", "none"), dump_beam="",
    )  # fmt: skip
    with_eos = np.pad(workload.sentences(w.V), ((0, 0), (0, 1)), constant_values=EOS)
    sources = torch.from_numpy(with_eos).long()

    def run_round():
        for rows in sources.split(workload.ROWS):
            batch = dict(src=rows[:, :, None], srclen=torch.full((len(rows),), rows.shape[1]))
            hypotheses = translator.translate_batch(batch, False)["predictions"]
            assert {len(best) for best, *_ in hypotheses} == {n}

    return run_round


if __name__ == "__main__":
    serve({"train": train, "translate": translate}, "OpenNMT-py")
