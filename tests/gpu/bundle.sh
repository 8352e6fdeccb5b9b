#!/usr/bin/env bash
# Packs what a GPU machine without LLVM, network or git needs into .gpu/cermet-gpu.tar.xz: the wheel, packs that were captured here, the GPU tests, the
# benchmarks, the tool, the fuzz, the examples and the benchmarks in C++, the commit, and every wheel in .gpu/wheels (peers to compare with,
# e.g. Liger-Kernel). There: bash tests/gpu/check.sh
#
# Environment: CAPTURE_PYTHON (a Python with the torch and the transformers of the GPU machine, of any build, which captures the
# packs; without it the GPU machine captures them in its tests).
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../setup.sh"

limit_mb=60
targets=(cermet_bench_launch cermet_bench_warm_start cermet_bench_op_plain cermet_add_rms_norm cermet_run_graph cermet_decoder_cuda
  cermet_tool fuzz)
binaries=(cermet_bench_launch cermet_bench_warm_start cermet_add_rms_norm cermet_run_graph cermet_decoder_cuda cermet fuzz)
setup_packages
setup_environment
setup_build "${targets[@]}"
if grep -q cermet_captured_graph build/build.ninja; then # where there is a CUDA runtime
  binaries+=(cermet_captured_graph)
  setup_build cermet_captured_graph
fi

staging=$(mktemp -d)
trap 'rm -rf "$staging"' EXIT
mkdir -p "$staging/wheels" "$staging/bin" "$staging/tests" .gpu
step "wheel" wheel.log "$python" -m pip wheel --disable-pip-version-check --no-build-isolation --no-deps \
  --config-settings=build-dir=build --config-settings=install.strip=true -w "$staging/wheels" .
step "CMake configure (tests again)" configure.log cmake --preset default -DCERMET_TESTS=ON
step "wheels that run the tests side by side" pip-gpu.log "$python" -m pip download --disable-pip-version-check --no-deps \
  -d "$staging/wheels" "$(grep '^pytest-xdist' tests/requirements.txt)" execnet
for peer in .gpu/wheels/*.whl; do [ ! -e "$peer" ] || cp "$peer" "$staging/wheels/"; done
for binary in "${binaries[@]}"; do
  [ -x "build/bin/$binary" ] || fail "build/bin/$binary is missing; did the build leave it out?"
  strip -o "$staging/bin/$binary" "build/bin/$binary"
done
strip -o "$staging/bin/libcermet_bench_op_plain.so" build/lib/libcermet_bench_op_plain.so
# Of graphs as the GPU machine's torch traces them: CAPTURE_PYTHON is a Python with that one. Without it, they are captured there.
[ -z "${CAPTURE_PYTHON:-}" ] || step "packs captured without a GPU" packs.log bash -c '
  set -euo pipefail
  "$1" -m pip install -q --disable-pip-version-check --no-deps --no-compile --target "$2/site" "$2"/wheels/cermet-*.whl
  export PYTHONPATH=$2/site CERMET_CACHE_DIR=$2/cache
  mkdir "$2/packs"
  for model in llama qwen3 checkpointed; do
    for calls in one=input_ids=2x16 many=input_ids=2x4..64; do
      "$1" -m cermet capture "tests/python/capturing/captured_models.py:$model" --shapes "${calls#*=}" \
        --target sm_80,sm_90,sm_100 -o "$2/packs/$model-${calls%%=*}.cpack"
    done
  done
  "$1" -c "import torch, transformers; print(torch.__version__.split(\"+\")[0], transformers.__version__)" >"$2/packs/of"
  rm -rf "$2/site" "$2/cache"' - "$CAPTURE_PYTHON" "$staging"
cp -r tests/gpu "$staging/tests/gpu"
cp -r tests/graphs "$staging/tests/graphs"
[ ! -d tests/python ] || cp -r tests/python "$staging/tests/python"
mkdir "$staging/bench" && cp bench/*.py "$staging/bench/"
find "$staging" -name __pycache__ -prune -exec rm -rf {} +
git describe --always --dirty --abbrev=12 >"$staging/commit" 2>/dev/null || echo unknown >"$staging/commit"

bundle=.gpu/cermet-gpu.tar.xz
tar -C "$staging" -c . | xz -T0 -6 >"$bundle.part"
mv "$bundle.part" "$bundle"
size=$(stat -c %s "$bundle")
say "$bundle: $(awk -v s="$size" 'BEGIN { printf "%.1f", s / 1e6 }') MB of commit $(cat "$staging/commit")"
(cd "$staging" && find . -type f -size +500k -printf '  %s bytes %p\n')
[ "$size" -le $((limit_mb * 1000 * 1000)) ] || fail "the bundle is over $limit_mb MB"
