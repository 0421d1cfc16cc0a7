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
from torch import nn

from t2t_jax.bench import work
from t2t_jax.bench.contenders import serve
from t2t_jax.tokens import BOS, EOS, PAD


def built(s):
    """The model and its vocabularies, whose ids are ours."""
    f = work.facts(s)
    parser = ArgumentParser()
    onmt.opts.model_opts(parser)
    options, _ = parser.parse_known_args([])
    vars(options).update(
        encoder_type="transformer", decoder_type="transformer", enc_layers=f["N"],
        dec_layers=f["N"], hidden_size=f["d_model"], enc_hid_size=f["d_model"],
        dec_hid_size=f["d_model"], word_vec_size=f["d_model"], src_word_vec_size=f["d_model"],
        tgt_word_vec_size=f["d_model"], heads=f["h"], transformer_ff=f["d_ff"],
        position_encoding=True, share_embeddings=True, share_decoder_embeddings=True,
        dropout=[f["P_drop"]], attention_dropout=[0.0], optim="adam", update_vocab=False,
        freeze_word_vecs_enc=False, freeze_word_vecs_dec=False, param_init=0.0,
        param_init_glorot=True, model_dtype="fp32", apex_opt_level="", quant_layers=[],
        parallel_mode="data_parallel", lora_layers=[], world_size=1,
    )  # fmt: skip
    specials = [DefaultTokens.PAD, DefaultTokens.BOS, DefaultTokens.EOS, DefaultTokens.UNK]
    names = [*specials, *(str(i) for i in range(4, s.V))]
    vocabulary = pyonmttok.build_vocab_from_tokens(names, special_tokens=specials)
    assert len(vocabulary) == s.V
    assert vocabulary[DefaultTokens.PAD] == PAD
    vocabularies = dict(
        src=vocabulary, tgt=vocabulary, data_task="seq2seq", decoder_start_token=DefaultTokens.BOS
    )
    model = build_base_model(options, vocabularies)
    for name, x in model.named_parameters():  # as its own training does: they are not set before
        if x.dim() > 1:
            nn.init.xavier_uniform_(x)
        elif name.endswith("bias"):
            nn.init.zeros_(x)
    return model, vocabularies


def train(size, batch_tokens):
    s = work.size(size, int(batch_tokens))
    f = work.facts(s)
    model, _ = built(s)
    model.train()
    criterion = nn.CrossEntropyLoss(ignore_index=PAD, reduction="sum", label_smoothing=f["eps_ls"])
    optimizer = torch.optim.Adam(model.parameters(), 1e-4, (0.9, 0.98), 1e-9)
    batches = []
    for b in work.batches(s):
        source, target = (torch.from_numpy(b[k]).long() for k in ("source", "target"))
        begun = torch.cat([torch.full((len(target), 1), BOS), target], 1)
        lengths = (source != PAD).sum(1)
        source = source[:, : lengths.max(), None]  # no longer than the longest, as it expects
        batches.append((source, begun[:, :, None], lengths, target))

    def round_():
        for source, begun, lengths, target in batches:
            optimizer.zero_grad(set_to_none=True)
            out, _ = model(source, begun, lengths)
            loss = criterion(model.generator(out).flatten(0, 1), target.flatten())
            (loss / (target != PAD).sum()).backward()
            optimizer.step()
        assert loss.isfinite()

    return round_


def translate(size, beam):
    s = work.size(size, 2048)
    model, vocabularies = built(s)
    model.eval()
    n = work.LENGTH
    translator = Translator(
        model, vocabularies, min_length=n, max_length=n, max_length_ratio=0, beam_size=int(beam),
        global_scorer=GNMTGlobalScorer(0.6, 0.0, "wu", "none"), dump_beam="",
    )  # fmt: skip
    ended = np.pad(work.sentences(s.V), ((0, 0), (0, 1)), constant_values=EOS)
    sentences = torch.from_numpy(ended).long()

    def round_():
        for rows in sentences.split(work.ROWS):
            batch = dict(src=rows[:, :, None], srclen=torch.full((len(rows),), rows.shape[1]))
            found = translator.translate_batch(batch, False)["predictions"]
            assert {len(best) for best, *_ in found} == {n}

    return round_


if __name__ == "__main__":
    serve({"train": train, "translate": translate}, "OpenNMT-py")
