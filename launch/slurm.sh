#!/usr/bin/env bash
# A study as a SLURM job array with a task for each seed of a row, or one large run on several nodes:
#   launch/slurm.sh --gres=gpu:1 --time=24:00:00 -- run table3 --preset paper --store /shared/runs
#   launch/slurm.sh --nodes=4 --gres=gpu:8 -- train big --mesh data=4,fsdp=8 --run /shared/big
# Options before -- are for sbatch, the words after it for t2t-jax. A preempted task saves, is
# requeued and resumes; `launch/local.sh table STUDY --store ...` shows the progress of a study.
set -euo pipefail
options=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do options+=("$1"); shift; done
[ $# -ge 3 ] || { sed -n '2,7s/^# //p' "$0" >&2; exit 2; }
shift
# JAX for CUDA is installed before the tasks start, even if this machine has no GPU.
extras="${T2T_JAX_EXTRAS:-}"
case "${options[*]}" in *gpu*) extras="$extras cuda" ;; esac
flags="${XLA_FLAGS:-}"
. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
export T2T_JAX_ROOT="$root" XLA_FLAGS="$flags" # a task's machine sets the flags of its own device
if [ "$1" != run ]; then
  if [ "$1" = train ]; then set -- "$@" --hosts auto; fi
  exec sbatch --requeue --open-mode=append --signal=TERM@120 "${options[@]}" \
    "$root/launch/slurm-task.sh" "$@"
fi
# --array=%4 among the options limits the tasks that run at once; --array=3,7 chooses tasks.
limit="" chosen=""
for option in "${options[@]}"; do
  case "$option" in
    --array=%*) limit="${option#--array=}" ;;
    --array=*) chosen=1 ;;
    --array | -a*) echo "slurm.sh: write $option as --array=..." >&2; exit 2 ;;
  esac
done
first=0 after=()
counts="$("$venv/bin/t2t-jax" "$@" --tasks)" # reports errors before anything is queued
for n in $counts; do
  [ -n "$chosen" ] || after+=("--array=$first-$((first + n - 1))$limit")
  job="$(sbatch --parsable --requeue --open-mode=append --signal=TERM@120 "${options[@]}" \
    "${after[@]}" "$root/launch/slurm-task.sh" "$@")"
  echo "Submitted batch job $job"
  [ -n "$chosen" ] && break
  first=$((first + n)) after=("--dependency=afterany:${job%%;*}") # seeds wait for the trials
done
