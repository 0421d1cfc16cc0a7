#!/usr/bin/env bash
# Runs a command of t2t-jax on this machine, and installs it first if needed:
#   launch/local.sh train grammar
# or a script:
#   launch/local.sh experiments/table1.py
set -euo pipefail
extras="${T2T_JAX_EXTRAS:-}"
# Batches that are decoded at once would wait for each other in one arena of memory.
case "$*" in
translate* | evaluate* | "bench translate"*) export MALLOC_ARENA_MAX="${MALLOC_ARENA_MAX:-8}" ;;
esac
. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
case "${1:-}" in *.py) PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}" exec "$venv/bin/python" "$@" ;; esac
exec "$venv/bin/t2t-jax" "$@"
