"""This project, as its benchmarks measure it."""

from t2t_jax.bench import train, translate, work
from t2t_jax.bench.contenders import serve

if __name__ == "__main__":
    serve(
        {
            "train": lambda size, batch_tokens: train.Steps(work.size(size, int(batch_tokens))),
            "translate": lambda size, beam: translate.rounds(work.size(size, 2048), int(beam)),
        }
    )
