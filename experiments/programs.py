"""Lower bounds on the time of training steps and attention on H100, H200 and v5e, without one.

    python3 -m venv gpu && gpu/bin/pip install -e .[cuda,tpu]
    gpu/bin/python experiments/programs.py       40 minutes on 2 CPU cores, no GPU; 6 GB of packages

Writes experiments/results/programs; what is already there is not compiled again. Expected for an
H100: at least 19 ms for a step of base at the paper's batch, and 30 ms with --kernels plain.
"""

import subprocess
import sys
from pathlib import Path

RESULTS = Path(__file__).parent / "results" / "programs"
BENCHES = {  # name of the result: options of `bench compile`
    "compile-h100": "--sizes tiny base big --mechanisms",
    "compile-h100-plain": "--sizes tiny base big --kernels plain",
    "compile-h200": "--device h200 --sizes tiny base big",
    "compile-h100x8": "--chips 8 --sizes base big",
    "compile-h100-2048-tokens": "--sizes tiny --batch_tokens 2048",
    "compile-h100-3-models-2048-tokens": "--sizes tiny --batch_tokens 2048 --population 3",
    "compile-h100-8-models-2048-tokens": "--sizes tiny --batch_tokens 2048 --population 8",
    "compile-h100-20-models-2048-tokens": "--sizes tiny --batch_tokens 2048 --population 20",
    "compile-v5e": "--device v5e --sizes tiny base big",
}


def main():
    for name, options in BENCHES.items():
        if not (RESULTS / f"{name}.json").exists():
            words = ["bench", "compile", *options.split(), "--out", str(RESULTS)]
            subprocess.run([sys.executable, "-m", "t2t_jax.cli", *words], check=True)


if __name__ == "__main__":
    main()
