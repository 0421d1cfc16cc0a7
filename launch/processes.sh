#!/usr/bin/env bash
# One run in N processes on this machine, which divide its GPUs among them:
#   launch/processes.sh 2 train grammar --mesh data=2
# For several machines, start on each: launch/local.sh train ... --hosts I/N@ADDRESS:PORT
set -euo pipefail
extras=""
. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
[[ "${1:-}" =~ ^[1-9][0-9]*$ ]] || { sed -n '2,4s/^# //p' "$0" >&2; exit 2; }
count="$1"
shift
port="$("$venv/bin/python" -c 'import socket; s = socket.socket(); s.bind(("", 0)); print(s.getsockname()[1])')"
gpus=()
if [ -n "${CUDA_VISIBLE_DEVICES:-}" ]; then
  IFS=, read -ra gpus <<<"$CUDA_VISIBLE_DEVICES"
elif command -v nvidia-smi >/dev/null; then
  mapfile -t gpus < <(nvidia-smi --list-gpus 2>/dev/null | sed -n 's/^GPU \([0-9]*\):.*/\1/p')
fi
per=$((${#gpus[@]} / count))
children=()
for ((i = 0; i < count; i++)); do
  ((per == 0)) || export CUDA_VISIBLE_DEVICES="$(IFS=, && echo "${gpus[*]:i*per:per}")"
  "$venv/bin/t2t-jax" "$@" --hosts "$i/$count@127.0.0.1:$port" &
  children+=($!)
done
trap 'kill -TERM "${children[@]}" 2>/dev/null' TERM INT
code=0
for child in "${children[@]}"; do
  wait "$child" || code=$?
  while kill -0 "$child" 2>/dev/null; do # a signal interrupts `wait` before the child exits
    wait "$child" || code=$?
  done
done
exit $code
