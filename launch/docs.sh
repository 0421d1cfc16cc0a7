#!/usr/bin/env bash
# Builds the documentation as a folder of pages, and installs what that needs first:
#   launch/docs.sh [DIR]                              [build/docs]
# pdoc reads a copy of the code, in which every page of Markdown is the docstring of a module.
set -euo pipefail
shopt -s globstar
extras="dev"
. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
out="$(realpath -m "${1:-$root/build/docs}")"
copy="$(mktemp -d)"
trap 'rm -rf "$copy"' EXIT
cp -r "$root"/{README.md,LICENSE,t2t_jax,experiments,launch} "$copy"
cd "$copy"
# Links lead to pages, the name of a file stands above its code, and a cell of a table stays on a line.
sed -i 's/\(](\(\.\|\w\)[^:)]*\)\.md\([)#]\)/\1.html\3/g; s/^```\(\w\+\) \(.\+\)/`\2`:\n\n```\1/; s/ ± /\xc2\xa0±\xc2\xa0/g' **/*.md
touch {t2t_jax/help,experiments,experiments/tools,launch}/__init__.py
for page in */README.md t2t_jax/help/*.md; do
  echo "\"\"\".. include:: ${page##*/}\"\"\"" >"${page%.md}.py"
done
sed -i '1s|"""|""".. include:: ../README.md\n\n|' t2t_jax/__init__.py
cat >>t2t_jax/__init__.py <<'EOF'
globals().update({name: __getattr__(name) for name in __all__})  # pdoc needs them loaded
__all__ += [module.name for module in __import__("pkgutil").iter_modules(__path__)]
EOF
echo 'main.pdoc { width: auto } .pdoc img { max-width: 100% } .pdoc table * { padding: 2px 6px }' >custom.css
"$venv/bin/python" -m pdoc -d google -t . -o "$out" t2t_jax experiments launch
cp "$out/t2t_jax.html" "$out/index.html" # README.md
cp --parents LICENSE experiments/tutorial.ipynb experiments/results/**/*.{png,txt} "$out"
