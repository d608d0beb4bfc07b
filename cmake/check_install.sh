#!/bin/bash
# check_install.sh CMAKE BUILD LIBDIR BINDIR [HALF...]: `cmake --install` puts everything where the README says.
set -euo pipefail
cmake=$1 build=$2 libdir=$3 bindir=$4
shift 4

prefix=$(mktemp -d)
trap 'rm -rf "$prefix"' EXIT
"$cmake" --install "$build" --prefix "$prefix" >/dev/null
rc=0
want=("$libdir/libswapnet.so")
for half in "$@"; do
    want+=("$libdir/swapnet/aten-$half.so")
done
want+=("$bindir/swapnetctl" "$bindir/swapnetd" "$bindir/swapnet-partition" "$libdir/libswapnet-store.so" "$libdir/pkgconfig/swapnet.pc"
    include/swapnet.h lib/systemd/system/swapnetd.service lib/systemd/system/swapnetd.socket)
for file in "${want[@]}"; do
    if [ ! -s "$prefix/$file" ]; then
        echo "not installed: $file"
        rc=1
    fi
done
exit $rc
