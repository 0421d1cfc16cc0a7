#!/usr/bin/env bash
# The tests, installed on first use and run by a process a core:
# launch/test.sh [--full] [pytest's arguments]
set -euo pipefail
extras="dev"
. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
cd "$root"
exec "$venv/bin/python" -m pytest -n auto --maxprocesses 4 --dist loadscope \
  --no-loadscope-reorder "$@"
