#!/bin/bash
# Writes the golden CUDA C++ again, from a build folder. Review the diff before it is committed.
set -euo pipefail
folder=$(cd "$(dirname "$0")" && pwd)
print="${1:?usage: update.sh BUILD}/bin/cermet-print-programs"
for graph in "$folder"/*.mlir; do
  name=$(basename "$graph" .mlir)
  "$print" "$graph" sm_90 > "$folder/Inputs/$name.cu"
done
