#!/usr/bin/env bash
# All set-up, then a small Llama trains for 50 steps in eager, through torch.compile(model) and through
# torch.compile(model, backend="cermet"), on the GPU if there is one, else on the CPU. On a bare Debian 12, as root: bash demo.sh
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/tests/setup.sh"

began=$(seconds)
setup_packages
setup_environment
setup_package
say "set-up: $(since "$began")"
say
exec "$python" bench/demo_train.py --out demo-out "$@"
