"""PyTorch's nn.Transformer with the paper's dropout, sinusoids and tied embeddings."""

import math

import torch
from serve import serve
from torch import nn
from torch.nn import functional as F

from t2t_jax.bench import workload
from t2t_jax.tokens import BOS, PAD


class Model(nn.Module):
    def __init__(self, N, d_model, d_ff, h, V, P_drop, eps_ls):
        super().__init__()
        self.embedding = nn.Embedding(V, d_model)
        nn.init.normal_(self.embedding.weight, std=d_model**-0.5)
        self.transformer = nn.Transformer(
            d_model, h, N, N, d_ff, P_drop, batch_first=True, layer_norm_eps=1e-6
        )
        for module in self.transformer.modules():
            if isinstance(module, nn.MultiheadAttention):
                module.dropout = 0.0
            elif isinstance(module, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
                module.dropout = nn.Identity()  # inside the feed-forward layer
        self.dropout, self.d_model, self.eps_ls = nn.Dropout(P_drop), d_model, eps_ls
        i, position = torch.arange(0, d_model, 2), torch.arange(512)[:, None]
        angle = position * 10000.0 ** (-i / d_model)
        self.register_buffer("sinusoids", torch.stack([angle.sin(), angle.cos()], -1).flatten(1))

    def embed(self, tokens):
        x = self.embedding(tokens) * math.sqrt(self.d_model)
        return self.dropout(x + self.sinusoids[: tokens.shape[1]])

    def forward(self, source, target):
        target_in = torch.roll(target, 1, 1)
        target_in[:, 0] = BOS
        padding, T = source == PAD, target.shape[1]
        causal = nn.Transformer.generate_square_subsequent_mask(T, device=target.device)
        x = self.transformer(
            self.embed(source), self.embed(target_in), tgt_mask=causal, tgt_is_causal=True,
            src_key_padding_mask=padding, memory_key_padding_mask=padding,
        )  # fmt: skip
        logits = F.linear(x, self.embedding.weight)
        return F.cross_entropy(
            logits.flatten(0, 1), target.flatten(), ignore_index=PAD, label_smoothing=self.eps_ls
        )


def train(size, batch_tokens, compiled=""):
    """Returns a round of training steps, eager or with `torch.compile`."""
    w = workload.workload(size, int(batch_tokens))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = Model(**workload.hyperparameters(w)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), 1e-4, (0.9, 0.98), 1e-9)
    loss_function = torch.compile(model, dynamic=False) if compiled else model
    batches = [
        {side: torch.from_numpy(x).long().to(device) for side, x in batch.items()}
        for batch in workload.batches(w)
    ]

    def run_round():
        for batch in batches:
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
                loss = loss_function(batch["source"], batch["target"])
            loss.backward()
            optimizer.step()
        assert loss.isfinite()

    return run_round


if __name__ == "__main__":
    serve({"train": train}, "torch")
