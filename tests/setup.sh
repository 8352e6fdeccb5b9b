# Set-up shared by demo.sh and test.sh; sourced, never run. On a bare Debian 12 it installs the packages, makes .venv,
# installs the package into it and builds the tests; where that is done already it says so and takes a second.
#
#   setup_packages        Debian packages (needs root when one is missing)
#   setup_environment     .venv with tests/requirements.txt; meanwhile builds what needs no torch
#   setup_package         `pip install .` into .venv, reusing build/
#   setup_build [TARGET]  what CMake builds in build/: everything, tests included, or only these targets
#
# Logs of the long steps are kept in build/logs/.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD
# What python3-dev belongs to, whichever Python comes first on PATH; one built without profiles is slower.
debians_python=/usr/bin/python3
python=$root/.venv/bin/python
logs=$root/build/logs
# What is imported is compiled once, and not by each process.
unset PYTHONDONTWRITEBYTECODE

packages=(
  ca-certificates cmake ninja-build g++ ccache python3 python3-dev python3-venv
  llvm-22-dev llvm-22-tools libmlir-22-dev mlir-22-tools lld-22 liblld-22-dev
  libfmt-dev nlohmann-json3-dev libcli11-dev libxxhash-dev libmd-dev libgtest-dev libgmock-dev
  libboost-context-dev
  libzstd-dev zlib1g-dev xz-utils pkg-config
  libopenblas-dev libsentencepiece-dev sentencepiece
  chromium
)

say() { printf '%s\n' "$*"; }
fail() { printf 'error: %s\n' "$*" >&2; exit 1; }
seconds() { date +%s.%N; }
since() { awk -v a="$1" -v b="$(seconds)" 'BEGIN { printf "%.1f s", b - a }'; }

# step TITLE LOG COMMAND...: runs a long command with its output in a log; shows the log's end when it fails.
step() {
  local title=$1 log=$logs/$2 start
  shift 2
  mkdir -p "$logs"
  start=$(seconds)
  printf '%s ... ' "$title"
  if "$@" >"$log" 2>&1; then
    say "$(since "$start")"
  else
    local status=$?
    say "failed after $(since "$start")"
    tail -n 40 "$log" >&2
    fail "$title failed with status $status; all of its output: $log"
  fi
}

# Equal for equal content: the files under the given paths, by path and content.
digest() {
  find "$@" -type f -not -path '*/__pycache__/*' -print0 | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum | cut -c1-32
}

# mark STAMP TEXT: a new file each time, since a copy of this folder made of hard links shares the old one.
mark() {
  printf '%s' "$2" >"$1.new" && mv "$1.new" "$1"
}

setup_packages() {
  local missing=() package
  for package in "${packages[@]}"; do
    case $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) in
      installed) ;;
      *) missing+=("$package") ;;
    esac
  done
  if [ ${#missing[@]} -eq 0 ]; then
    say "Debian packages: all ${#packages[@]} are there"
    return
  fi
  command -v apt-get >/dev/null || fail "this needs a Debian 12; missing here: ${missing[*]}"
  if [ "$(id -u)" -ne 0 ]; then
    fail "these Debian packages are missing and only root can install them; run, then try again:
  sudo apt-get update && sudo apt-get install -y --no-install-recommends ${missing[*]}"
  fi
  export DEBIAN_FRONTEND=noninteractive
  step "apt-get update" apt-update.log apt-get update
  step "apt-get install of ${#missing[@]} packages" apt-install.log \
    apt-get install -y --no-install-recommends "${missing[@]}"
}

# Most of the packages' modules are never imported: those that are are compiled then.
pip_install() {
  "$python" -m pip install --disable-pip-version-check --no-compile "$@"
}

install_requirements() {
  pip_install "$(grep '^torch==' tests/requirements.txt)" && pip_install -r tests/requirements.txt
}

# What needs no torch. What fails here fails again, and is told, where the package is built.
build_libraries() {
  cmake --preset default -DCERMET_TESTS=OFF -DCERMET_TORCH=OFF &&
    cmake --build --preset default --target cermet cermet_compiler cermet_tool
}

settled() { wait "$1" || true; }

setup_environment() {
  local wanted stamp=$root/.venv/requirements.stamp
  if [ ! -x "$python" ]; then
    "$debians_python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))' 2>/dev/null ||
      fail "$debians_python cannot make a virtual environment; it must be Python 3.10 or later with venv and ensurepip"
    step "virtual environment .venv" venv.log "$debians_python" -m venv .venv
  fi
  wanted=$(digest tests/requirements.txt)
  if [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then
    say "Python packages: .venv is up to date"
    return
  fi
  # Packages are unpacked by one core: the others build meanwhile.
  step "NVTX's headers into .venv" nvtx.log pip_install "$(grep '^nvidia-nvtx' tests/requirements.txt)"
  set -m # a group of its own, which ends with what fails here
  build_libraries >"$logs/libraries.log" 2>&1 &
  local building=$!
  set +m
  trap "kill -- -$building 2>/dev/null || true" EXIT
  step "Python packages into .venv (torch first)" pip.log install_requirements
  step "what needs no torch, built meanwhile: the rest" wait.log settled "$building"
  trap - EXIT
  mark "$stamp" "$wanted"
}

# The package's own sources: when none changed since the last install, there is nothing to install.
setup_package() {
  local wanted stamp=$root/.venv/package.stamp
  wanted=$(digest CMakeLists.txt pyproject.toml ir patterns compiler runtime frontends)
  if [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then
    say "package cermet: .venv holds these sources"
    return
  fi
  step "package cermet: build and install into .venv" package.log \
    "$python" -m pip install --disable-pip-version-check --no-build-isolation --no-deps --force-reinstall \
    --config-settings=build-dir=build .
  mark "$stamp" "$wanted"
}

setup_build() {
  step "CMake configure (preset default)" configure.log \
    cmake --preset default -DCERMET_TESTS=ON -DCERMET_TORCH=ON
  step "build" build.log cmake --build --preset default ${1:+--target "$@"}
}
