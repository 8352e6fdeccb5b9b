#!/usr/bin/env bash
# Tries the newest wheel in .whl/ (tests/wheel.sh writes it) with each Python and each torch: both are installed by pip,
# with all that they ask for, into an environment of their own, and step.py takes one step there.
#
#   bash tests/wheel/matrix.sh [-w WHEEL] [-t TORCH]... [PYTHON]...
#
# A TORCH is a version (without one: that of tests/requirements.txt), a PYTHON the path of an interpreter (without one:
# python3.10 to python3.14 on PATH). Prints a row for each pair: ok, FAILED with the reason, "not to be had" where pip
# knows no such torch for this Python, or "not here" where the machine has no such Python. Exits with 1 if a pair failed
# or none was ok.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../setup.sh"

names=(3.10 3.11 3.12 3.13 3.14)
limit_s=900 # of one installation: torch's own dependencies are gigabytes
torches=() wheel=
while getopts w:t: option; do
  case $option in
    w) wheel=$(realpath "$OPTARG") ;;
    t) torches+=("$OPTARG") ;;
    *) fail "usage: bash tests/wheel/matrix.sh [-w WHEEL] [-t TORCH]... [PYTHON]..." ;;
  esac
done
shift $((OPTIND - 1))
[ -n "$wheel" ] || wheel=$(ls -t "$root"/.whl/cermet-*.whl 2>/dev/null | head -1)
[ -f "$wheel" ] || fail "there is no wheel in .whl/; bash tests/wheel.sh writes it, or name one with -w"
[ ${#torches[@]} -gt 0 ] || torches=("$(sed -n 's/^torch==//p' tests/requirements.txt)")

version_of() { "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null; }

# The first interpreter of this version on PATH that runs (one that only says which others there are does not) and can
# make an environment.
on_path() {
  local candidate
  while read -r candidate; do
    if [ "$(version_of "$candidate")" = "$1" ] && "$candidate" -c 'import venv, ensurepip' 2>/dev/null; then
      say "$candidate"
      return
    fi
  done < <(type -ap "python$1")
}

declare -A interpreters
if [ $# -eq 0 ]; then
  for name in "${names[@]}"; do
    interpreters[$name]=$(on_path "$name")
  done
else
  names=()
  for interpreter in "$@"; do
    name=$(version_of "$interpreter") ||
      fail "'$interpreter' is no Python that runs; expected the path of an interpreter"
    names+=("$name")
    interpreters[$name]=$interpreter
  done
fi

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir -p "$logs"

# try INTERPRETER TORCH LOG: sets `outcome` and `detail`.
try() {
  local environment=$scratch/environment log=$3 status=0
  rm -rf "$environment" "$scratch/cache"
  outcome=FAILED
  if ! "$1" -m venv "$environment" >"$log" 2>&1; then
    detail="no environment: $(tail -n 1 "$log")"
    return
  fi
  timeout "$limit_s" "$environment/bin/python" -m pip install --disable-pip-version-check --no-input --no-compile \
    --cache-dir "$scratch/pip" "torch==$2" "$wheel" >>"$log" 2>&1 || status=$?
  if [ "$status" -eq 124 ]; then
    detail="pip took more than $limit_s s"
  elif [ "$status" -ne 0 ]; then
    detail="pip: $(grep -m 1 '^ERROR' "$log" || tail -n 1 "$log")"
    # Without a network pip knows no version of anything either, but says that it tried again.
    if grep -qF "No matching distribution found for torch==$2" "$log" && ! grep -q 'Retrying (' "$log"; then
      outcome="not to be had"
      detail="pip knows no such torch for this Python"
    fi
  elif (cd "$scratch" && env -u PYTHONPATH -u PYTHONHOME CERMET_CACHE_DIR="$scratch/cache" \
    timeout "$limit_s" "$environment/bin/python" "$root/tests/wheel/step.py" "$environment") >>"$log" 2>&1; then
    outcome=ok
    detail=$(tail -n 1 "$log")
  else
    detail="step: $(tail -n 1 "$log")"
  fi
}

row() { printf '%-8s %-10s %-14s %8s  %s\n' "$@"; }
good=0 bad=0
say "$(basename "$wheel"), $(stat -c %s "$wheel") bytes"
row python torch outcome seconds ""
for name in "${names[@]}"; do
  if [ -z "${interpreters[$name]}" ]; then
    row "$name" - "not here" - "no python$name on PATH that can make an environment; name one"
    continue
  fi
  for torch in "${torches[@]}"; do
    log=$logs/wheel-$name-$torch.log
    start=$(seconds)
    try "${interpreters[$name]}" "$torch" "$log"
    [ "$outcome" != ok ] || good=$((good + 1))
    [ "$outcome" != FAILED ] || { bad=$((bad + 1)) && detail="$detail; all of it: $log"; }
    row "$name" "$torch" "$outcome" "$(since "$start" | sed 's/ s$//')" "$detail"
  done
done
[ "$bad" -eq 0 ] || fail "$bad of $((good + bad)) pairs failed"
[ "$good" -gt 0 ] || fail "no pair was tried; name interpreters and versions that this machine can have"
