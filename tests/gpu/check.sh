#!/usr/bin/env bash
# On a machine with an NVIDIA GPU, Python and a CUDA build of torch, given .gpu/cermet-gpu.tar.xz (tests/gpu/bundle.sh):
# unpacks it, installs its wheels into a folder of their own, runs the sections asked for and writes one JSON.
#
#   bash tests/gpu/check.sh                    every section
#   bash tests/gpu/check.sh tests kernels      some of: tests python sanitizer launch warm kernels graphs fusions
#                                              cross_entropy heads op_call curves functions decode lengths longest
#                                              families architectures step first
#
# Environment: OUT (results, default ./gpu-out), CERMET_BUNDLE (the bundle, default .gpu/cermet-gpu.tar.xz), PYTHON.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
bundle=${CERMET_BUNDLE:-$here/../../.gpu/cermet-gpu.tar.xz}
python=${PYTHON:-python3}
out=$(mkdir -p "${OUT:-gpu-out}" && cd "${OUT:-gpu-out}" && pwd)
[ -f "$bundle" ] || { echo "error: $bundle is not there; make it with bash tests/gpu/bundle.sh" >&2; exit 2; }

work=${TMPDIR:-/tmp}/cermet-gpu-$(sha256sum "$bundle" | cut -c1-12)
if [ ! -f "$work/ready" ]; then
  rm -rf "$work"
  mkdir -p "$work"
  tar -C "$work" -xJf "$bundle"
  "$python" -m pip install -q --disable-pip-version-check --no-index --no-deps --no-compile --target "$work/site" "$work"/wheels/*.whl
  touch "$work/ready"
fi
export PYTHONPATH=$work/site LD_LIBRARY_PATH=$work/site/cermet${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export CERMET_CACHE_DIR=$work/cache PYTHONUNBUFFERED=1
cd "$work"
exec "$python" tests/gpu/check.py --out "$out/gpu.json" "$@"
