#!/bin/bash
# check_backend.sh BACKEND: a torch backend asks for PyTorch by swapnet's name for it, and says nothing of what its libraries are called or where they lie.
set -euo pipefail
export LC_ALL=C
backend=$1 rc=0

dynamic=$(readelf -dW "$backend")
if ! grep -q '(NEEDED).*\[swapnet-torch\]' <<<"$dynamic"; then
    printf '%s does not need swapnet-torch\n' "$backend"
    rc=1
fi
if grep -E '\(NEEDED\).*\[lib(c10|torch)' <<<"$dynamic"; then
    printf '%s says what its libraries are called\n' "$backend"
    rc=1
fi
if grep -E '\((RPATH|RUNPATH)\)|\(NEEDED\).*\[.*/' <<<"$dynamic"; then
    printf '%s says where its libraries lie\n' "$backend"
    rc=1
fi
exit $rc
