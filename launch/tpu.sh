#!/usr/bin/env bash
# One run on all hosts of a TPU slice; this checkout must have the same path on every host:
#   launch/tpu.sh NAME ZONE train big --mesh data=4,fsdp=8 --run /shared/big
# A preempted slice loses its hosts: create it again, and the same command resumes the run.
set -euo pipefail
[ $# -ge 3 ] || { sed -n '2,4s/^# //p' "$0" >&2; exit 2; }
name="$1" zone="$2"
shift 2
if [ "$1" = train ]; then set -- "$@" --hosts auto; fi
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
exec gcloud compute tpus tpu-vm ssh "$name" --zone="$zone" --worker=all \
  --command="$(printf '%q ' env T2T_JAX_EXTRAS=tpu "$root/launch/local.sh" "$@")"
