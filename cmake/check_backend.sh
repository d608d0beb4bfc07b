#!/bin/bash
# check_backend.sh BACKEND: a torch backend names the PyTorch libraries it belongs to, and says nothing of where they lie.
set -euo pipefail
export LC_ALL=C
backend=$1 rc=0

dynamic=$(readelf -dW "$backend")
for library in libc10.so libtorch_cpu.so; do
    if ! grep -q "(NEEDED).*\[$library" <<<"$dynamic"; then
        printf '%s does not need %s\n' "$backend" "$library"
        rc=1
    fi
done
if grep -E '\((RPATH|RUNPATH)\)|\(NEEDED\).*\[.*/' <<<"$dynamic"; then
    printf '%s says where its libraries lie\n' "$backend"
    rc=1
fi
exit $rc
