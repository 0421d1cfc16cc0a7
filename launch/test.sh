#!/usr/bin/env bash
# Runs the tests, with one process per core and at most four, and installs what they need first:
#   launch/test.sh [--full] [arguments of pytest]
set -euo pipefail
extras="dev"
. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
cd "$root"
exec "$venv/bin/python" -m pytest -n auto --maxprocesses 4 --dist loadscope \
  --no-loadscope-reorder "$@"
