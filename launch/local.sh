#!/usr/bin/env bash
# t2t-jax on this machine, installed on first use: launch/local.sh train grammar
# or a script of its own: launch/local.sh experiments/table1.py
set -euo pipefail
extras="${T2T_JAX_EXTRAS:-}"
. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
case "${1:-}" in *.py) exec "$venv/bin/python" "$@" ;; esac
exec "$venv/bin/t2t-jax" "$@"
