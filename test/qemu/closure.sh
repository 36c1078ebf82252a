#!/bin/bash
# closure.sh ROOT FOLDER PROGRAM...: copies programs into ROOT/FOLDER and every library they need
# (as the loader of this machine resolves it) into ROOT's library folder.
# exit: 0 done, 2 a program is missing or a library of it is not found
set -euo pipefail

[ $# -ge 3 ] || { echo "closure.sh: say closure.sh ROOT FOLDER PROGRAM..." >&2; exit 2; }
root=$1
folder=$2
shift 2
lib=$root/usr/lib/x86_64-linux-gnu
mkdir -p "$root/$folder" "$lib" "$root/usr/lib64"

for program in "$@"; do
    if [ ! -f "$program" ]; then
        echo "closure.sh: cannot copy $program into the guest: no such file; build it first" >&2
        exit 2
    fi
    install -m 755 "$program" "$root/$folder/"
    # a script, or a static program, has no dynamic section and needs nothing
    objdump -p "$program" 2> /dev/null | grep NEEDED > /dev/null || continue
    while read -r name arrow path rest; do
        case $name in
            linux-vdso.so*) continue ;;
            /lib64/ld-linux*) cp -Lu "$name" "$root/usr/lib64/"; continue ;;
        esac
        if [ "$arrow" = "=>" ] && [ "$path" = not ]; then
            echo "closure.sh: $program needs $name ($path $rest): install its package" >&2
            exit 2
        fi
        if [ "$arrow" = "=>" ] && [ ! -e "$lib/$name" ]; then
            cp -L "$path" "$lib/$name"
        fi
    done < <(ldd "$program")
done
