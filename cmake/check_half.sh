#!/bin/bash
# check_half.sh HALF: an ATen half names the PyTorch libraries it belongs to, and says nothing of where they lie.
set -euo pipefail
export LC_ALL=C
half=$1 rc=0

dynamic=$(readelf -dW "$half")
for library in libc10.so libtorch_cpu.so; do
    if ! grep -q "(NEEDED).*\[$library" <<<"$dynamic"; then
        printf '%s does not need %s\n' "$half" "$library"
        rc=1
    fi
done
if grep -E '\((RPATH|RUNPATH)\)|\(NEEDED\).*\[.*/' <<<"$dynamic"; then
    printf '%s says where its libraries lie\n' "$half"
    rc=1
fi
exit $rc
