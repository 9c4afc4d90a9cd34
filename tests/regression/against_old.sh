#!/bin/sh
# Old commit and new on one machine, to the last bit:  tests/regression/against_old.sh [COMMIT] [NAME ...]
# The old code runs the configurations of before/, this checkout those of configs/. PYTHON may name the interpreter.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
commit=${1:-652e4c6}
[ $# -eq 0 ] || shift
python=${PYTHON:-$root/.venv/bin/python}
home=$(mktemp -d)
trap 'git -C "$root" worktree remove --force "$home/old"; rm -rf "$home"' EXIT
git -C "$root" worktree add --quiet --detach "$home/old" "$commit"
cd "$root"

make() { # FOLDER UNBRAID OUT [NAME ...]; what unbraid says is shown only if it fails
    folder=$1 unbraid=$2 out=$3
    shift 3
    "$python" -m tests.regression.make --configs "tests/regression/$folder" --unbraid "$unbraid" --out "$out" "$@" \
        2>"$home/log" || { cat "$home/log" >&2 && exit 1; }
}

make before "$home/old" "$home/old.json" "$@"
make configs "$root" "$home/new.json" "$@"
"$python" -m tests.regression.compare "$home/old.json" "$home/new.json"
