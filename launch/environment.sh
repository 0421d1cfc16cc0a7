# Sourced by the other scripts: makes .venv in the checkout unless it exists, installs what
# pyproject.toml requires, and sets environment variables that speed up training on a CPU.
# A script sets extras="..." (extras of pyproject.toml) before it sources this file.
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
venv="$root/.venv"
[ -e /dev/nvidia0 ] && extras="$extras cuda"

[ -x "$venv/bin/python" ] || "${PYTHON:-python3}" -m venv "$venv"
"$venv/bin/python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
  echo "launch: Python 3.11 or newer is needed: remove $venv and name one, as in PYTHON=python3.12 $0" >&2
  exit 2
}
requirements="$(cksum <"$root/pyproject.toml") $root"
for extra in base $extras; do
  stamp="$venv/.installed-$extra"
  [ "$(cat "$stamp" 2>/dev/null)" = "$requirements" ] && continue
  echo "launch: installing ($extra)" >&2
  target="$root"
  [ "$extra" = base ] || target="$root[$extra]"
  "$venv/bin/python" -m pip install -qq --disable-pip-version-check --editable "$target" >&2
  echo "$requirements" >"$stamp"
done

# glibc keeps freed memory instead of returning it to the kernel, so that temporaries of up to 4 GiB do
# not cause page faults in every step, and uses huge pages where the kernel allows it.
export MALLOC_ARENA_MAX="${MALLOC_ARENA_MAX:-1}"
export MALLOC_MMAP_THRESHOLD_="${MALLOC_MMAP_THRESHOLD_:-4294967296}"
export MALLOC_TRIM_THRESHOLD_="${MALLOC_TRIM_THRESHOLD_:-8589934592}"
export MALLOC_TOP_PAD_="${MALLOC_TOP_PAD_:-268435456}"
export GLIBC_TUNABLES="glibc.malloc.hugetlb=1${GLIBC_TUNABLES:+:$GLIBC_TUNABLES}"

# On a CPU, programs then compile in a fifth less time and run as fast.
[ -e /dev/nvidia0 ] || export XLA_FLAGS="--xla_backend_optimization_level=1${XLA_FLAGS:+ $XLA_FLAGS}"
