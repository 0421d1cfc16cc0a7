#!/usr/bin/env bash
# One task of launch/slurm.sh. SIGTERM is passed on; work that can go on (75) is queued again.
set -uo pipefail
extras=""
. "$T2T_JAX_ROOT/launch/environment.sh"
command=("$venv/bin/t2t-jax" "$@")
if [ -n "${SLURM_ARRAY_TASK_ID:-}" ]; then
  command+=(--task "$SLURM_ARRAY_TASK_ID")
else
  command=(srun --kill-on-bad-exit=0 "${command[@]}")
fi
"${command[@]}" &
child=$!
trap 'kill -TERM $child 2>/dev/null' TERM
wait $child
code=$?
while kill -0 $child 2>/dev/null; do # a trap ends `wait` before the child has ended
  wait $child
  code=$?
done
[ $code = 75 ] || [ $code = 143 ] && scontrol requeue "$SLURM_JOB_ID"
exit $code
