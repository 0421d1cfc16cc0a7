#!/usr/bin/env bash
# One task of launch/slurm.sh. It runs in a job step, to which SLURM sends SIGTERM before the time
# limit; a task that can resume (exit code 75) is requeued.
set -uo pipefail
extras=""
. "$T2T_JAX_ROOT/launch/environment.sh"
task=()
[ -n "${SLURM_ARRAY_TASK_ID:-}" ] && task=(--task "$SLURM_ARRAY_TASK_ID")
srun --kill-on-bad-exit=0 "$venv/bin/t2t-jax" "$@" "${task[@]}"
code=$?
[ $code = 75 ] || [ $code = 143 ] && scontrol requeue "$SLURM_JOB_ID"
exit $code
