#!/usr/bin/env bash
# The trial: what the cache, packs, the compiler and the C interface must stand, at its full counts, each figure beside
# what is asked of it (tests/trial/run.py says what there is). Does its own set-up; half an hour of two cores, and hours more
# for a million inputs of each fuzzer.
#
#     bash tests/trial.sh                        all of it; what it saw goes into tests/trial/results.json
#     bash tests/trial.sh damage holders         these sections; the others' last results stay
#     bash tests/trial.sh --part 0.01 --out FILE a hundredth of each count; nothing that is kept changes
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

packages+=(clang-22 libclang-rt-22-dev) # whose libFuzzer nothing else needs
setup_packages
setup_environment
setup_build
step "CMake configure (preset libfuzzer)" configure-libfuzzer.log cmake --preset libfuzzer
step "build for libFuzzer" build-libfuzzer.log cmake --build --preset libfuzzer
exec "$python" tests/trial/run.py "$@"
