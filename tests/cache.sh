#!/bin/bash
# The cache in large numbers, with what build/ holds (bash test.sh unit makes it):
#     bash tests/cache.sh [damage|writers|makers|wipes|node ...]       all of them without a name
# Prints one line for each and ends with 1 if one failed.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
tests=build/bin/test_runtime process=build/bin/store_process failed=0
[ -x "$tests" ] && [ -x "$process" ] || { echo "error: $tests and $process are not there; run bash test.sh unit" >&2; exit 2; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# repeat WHAT TIMES FILTER: a GoogleTest filter so many times, until it fails; WHAT says what that makes.
repeat() {
  local start=$SECONDS answer=right
  "$tests" --gtest_filter="$3" --gtest_repeat="$2" --gtest_break_on_failure >"$scratch/log" 2>&1 || answer=wrong failed=1
  printf '%-58s %s, %d s\n' "$1" "$answer" $((SECONDS - start))
  [ $answer = right ] || tail -n 20 "$scratch/log"
}

# The seconds that so many processes take which start together over one cold directory, and what they made.
together() {
  local start end ids=() index
  start=$(date +%s.%N)
  for ((index = 0; index < $1; ++index)); do
    "$process" "$scratch/node-$1-$2" keys=200 make=100 "locks=$2" >"$scratch/counts-$index" &
    ids+=($!)
  done
  for index in "${ids[@]}"; do wait "$index" || failed=1; done
  end=$(date +%s.%N)
  cat "$scratch"/counts-* | awk -v processes="$1" -v locks="$2" -v seconds="$(echo "$end $start" | awk '{ print $1 - $2 }')" '
    { made += $1; failures += $2; waits += $3 }
    END { printf "%2d processes, 200 keys of 100 ms, %-13s made %d, %d failures, %d waits, %.1f s\n", processes,
          locks ? "with locks:" : "without locks:", made, failures, waits, seconds }'
  rm -f "$scratch"/counts-*
}

for part in "${@:-damage writers makers wipes node}"; do
  for one in $part; do
    case $one in
    damage) DAMAGES=200000 repeat "1,000,000 damaged entries and packs" 1 'Entry.RefusesDamage*:PackTest.DamageIsFound' ;;
    writers) repeat "10,080 writers killed, half of them while they remove" 84 'StoreTest.AKilledProcessLeavesNoDamage' ;;
    makers) repeat "1,000 makers killed, the next goes on within a second" 50 'Turn.AKilledMaker*' ;;
    wipes) repeat "16 writers at a bound, and wipes, 20 times" 20 'BoundTest.HoldsWhileManyWrite:BoundTest.WipesFailNoLoad' ;;
    node) together 1 1; together 64 1; together 64 0 ;;
    *) echo "error: $one is none of damage, writers, makers, wipes, node" >&2; exit 2 ;;
    esac
  done
done
exit $failed
