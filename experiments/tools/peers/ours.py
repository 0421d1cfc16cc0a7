"""This project: the rounds of `bench train` and `bench translate`."""

from serve import serve

from t2t_jax.bench import train, translate
from t2t_jax.bench.workload import workload

if __name__ == "__main__":
    serve(
        {
            "train": lambda size, batch_tokens: train.Steps(workload(size, int(batch_tokens))),
            "translate": lambda size, beam: translate.rounds(workload(size, 2048), int(beam)),
        }
    )
