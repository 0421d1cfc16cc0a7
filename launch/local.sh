#!/usr/bin/env bash
# t2t-jax on this machine, installed on first use: launch/local.sh train grammar
set -euo pipefail
extras=""
. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
exec "$venv/bin/t2t-jax" "$@"
