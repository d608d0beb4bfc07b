#!/bin/bash
# check_install.sh CMAKE BUILD LIBDIR BINDIR DATADIR MANDIR [BACKEND...]: `cmake --install` puts everything where the README says.
set -euo pipefail
cmake=$1 build=$2 libdir=$3 bindir=$4 datadir=$5 mandir=$6
shift 6

prefix=$(mktemp -d)
trap 'rm -rf "$prefix"' EXIT
"$cmake" --install "$build" --prefix "$prefix" >/dev/null
rc=0
want=("$libdir/libswapnet.so")
for backend in "$@"; do
    want+=("$libdir/swapnet/aten-$backend.so")
done
want+=("$libdir"/swapnet/worker/{worker.so,__main__.py,swapnet_worker/server.py})
want+=("$libdir"/swapnet/add_torch/{__main__.py,torch_info.py,recipe.json,libjansson.a,include/jansson.h,source/shim/torch/{op_hook.cpp,compat.h},source/skeleton/abi/abi.h})
want+=("$libdir"/swapnet/verify/{__main__.py,reference.py,served.py,trust.py})
want+=("$bindir/swapnetctl" "$bindir/swapnetd" "$bindir/swapnet-partition" "$libdir/libswapnet-store.so" "$libdir/pkgconfig/swapnet.pc"
    include/swapnet.h lib/systemd/system/swapnetd.service lib/systemd/system/swapnetd.socket lib/sysusers.d/swapnet.conf
    "$datadir"/swapnet/devices/{jetson-nx,jetson-nano,raspberry-pi-3b-plus,raspberry-pi-4b}.json
    "$datadir"/bash-completion/completions/{swapnetctl,swapnet-partition})
if [ -e "$build/bin/swapnet-serve" ]; then # libmicrohttpd was there
    want+=("$bindir/swapnet-serve" lib/systemd/system/swapnet-serve.service lib/tmpfiles.d/swapnet.conf)
fi
if [ -d "$build/man" ]; then # scdoc was there
    want+=("$mandir"/man{1/swapnetctl.1,1/swapnet-partition.1,7/swapnet.7,8/swapnetd.8,8/swapnet-serve.8})
fi
for file in "${want[@]}"; do
    if [ ! -s "$prefix/$file" ]; then
        echo "not installed: $file"
        rc=1
    fi
done
# The programs find their parts there, whatever the directory of libraries is called. Where they are for another processor they cannot run.
"$prefix/$bindir/swapnetctl" --version >/dev/null 2>&1 || [ $? -ne 126 ] || exit $rc
if ! env -u SWAPNET_LIBRARY "$prefix/$bindir/swapnetctl" run -b 64M -- true; then
    echo "swapnetctl does not find $libdir/libswapnet.so"
    rc=1
fi
exit $rc
