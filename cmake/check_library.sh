#!/bin/bash
# check_library.sh LIBRARY EXPORTS: what the library shows the world is exactly EXPORTS (one symbol a line, # comments),
# and libc is all it needs. One stray name or dependency would change programs that have nothing to do with us.
set -euo pipefail
export LC_ALL=C
library=$1 exports=$2 rc=0

needed=$(readelf -dW "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\].*/\1/p' | sed -e '/^libc\.so\.6$/d' -e '/^ld-linux/d')
if [ -n "$needed" ]; then
    printf '%s needs more than libc:\n%s\n' "$library" "$needed"
    rc=1
fi
if readelf -dW "$library" | grep -E '\((RPATH|RUNPATH)\)'; then
    printf '%s has a run path\n' "$library"
    rc=1
fi
if [ -f "$exports" ]; then
    # Version nodes are absolute symbols (A); versions follow an @.
    if ! diff -u --label exports.txt --label "$library" \
        <(sed -e 's/#.*//' -e 's/[[:space:]]*$//' -e '/^$/d' "$exports" | sort -u) \
        <(nm -D --defined-only "$library" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | sort -u); then
        rc=1
    fi
else
    echo "$exports is not there: exported names not checked"
fi
exit $rc
