#!/usr/bin/env bash
# All set-up and every test that this machine can run. On a bare Debian 12, as root: bash test.sh
# One part of it: bash test.sh unit|lit|simt|errors|fuzz|python|gpu ...
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/tests/setup.sh"

native=(unit lit simt errors fuzz)
parts=("$@")
[ ${#parts[@]} -gt 0 ] || parts=("${native[@]}" python gpu)
for part in "${parts[@]}"; do
  case $part in
    unit | lit | simt | errors | fuzz | python | gpu) ;;
    *) fail "unknown part '$part'; the parts are: ${native[*]} python gpu" ;;
  esac
done

began=$(seconds)
setup_packages
setup_environment
setup_package
setup_build
say "set-up: $(since "$began")"

results=$root/build/results
rm -rf "$results"
mkdir -p "$results"
broken=() # parts that ended badly without a failed test: a crash, nothing collected
skipped_parts=()

# run PART COMMAND...: the command writes $results/PART.xml (JUnit), which says what passed.
run() {
  local part=$1 start status=0
  shift
  start=$(seconds)
  say
  say "== $part"
  "$@" || status=$?
  if ! "$python" tests/totals.py --part "$results/$part.xml" "$status"; then
    broken+=("$part")
  fi
  say "   $part took $(since "$start")"
}

native_part() {
  if [ ! -f "build/tests/$1/CTestTestfile.cmake" ]; then
    say "build/tests/$1 holds no tests; is tests/$1/CMakeLists.txt there?"
    return 1
  fi
  ctest --test-dir "build/tests/$1" --output-on-failure --no-tests=error --progress -j "$(nproc)" --timeout 900 \
    --output-junit "$results/$1.xml" >"$logs/ctest-$1.log" 2>&1 ||
    { local status=$?; sed -n '/^The following tests FAILED/,$p' "$logs/ctest-$1.log"; say "all of its output: $logs/ctest-$1.log"; return $status; }
}

python_part() {
  local workers=$(($(nproc) < 12 ? $(nproc) : 12))
  "$python" -m pytest "$1" -q -n "$workers" --dist worksteal --timeout 900 --durations 5 -rsf -p no:cacheprovider \
    --junitxml "$results/$2.xml"
}

for part in "${parts[@]}"; do
  case $part in
    python) run python python_part tests/python python ;;
    gpu)
      if why=$("$python" tests/gpu/present.py); then
        run gpu python_part tests/gpu gpu
      else
        skipped_parts+=("gpu (tests/gpu): $why")
      fi
      ;;
    *) run "$part" native_part "$part" ;;
  esac
done

say
for part in "${skipped_parts[@]}"; do say "skipped $part"; done
for part in "${broken[@]}"; do say "broken $part: see above"; done
say "all of it took $(since "$began")"
status=0
"$python" tests/totals.py "$results" || status=1
[ ${#broken[@]} -eq 0 ] || status=1
if [ $status -eq 0 ]; then
  say "next: bash demo.sh trains a small Llama; CERMET_DUMP=out bash demo.sh shows every text on the way to machine code"
else
  say "next: run one part again with bash test.sh unit|lit|simt|errors|fuzz|python|gpu; logs are in build/logs/"
fi
exit $status
