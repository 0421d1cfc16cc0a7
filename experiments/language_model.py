"""What each half of Figure 1 sees: the decoder alone, the encoder alone, and both.

    launch/local.sh run language_model                     in miniature on the built-in corpus
    launch/local.sh run language_model --preset multi30k   on real text

All tell the target, subword by subword: the decoder from what stands before, the encoder from both
sides (every token is masked in turn, which makes its perplexity one of pseudo-likelihood and the
end mark an easy guess), the Transformer from what stands before and the source. The encoder learns
from the 15% of tokens that a step masks, the others from all.
"""

from t2t_jax.study import Row, study


@study("What each half sees", columns="architecture steps", split="", V=41_100)
def language_model():
    return [
        Row("both", {}),
        Row("decoder, causal", dict(architecture="decoder")),
        Row("encoder, masked", dict(architecture="encoder")),
        Row("encoder, masked, 3 x", dict(architecture="encoder", steps=300_000)),
    ]
