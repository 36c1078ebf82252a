#!/bin/bash
# guest.sh [OPTION...] -- COMMAND [ARG...]: runs a command in a guest with real verbs and returns
# its exit status. Soft-RoCE on a stock kernel in QEMU by software emulation: no /dev/kvm, no root
# needed (root only installs packages that are missing). What it measures is function, never speed.
#
#   one guest (the default), all in its first network namespace     two guests (-2), NODE is 0 or 1
#
#      node a                switch              node b              guest 0           guest 1
#   rxe_a0 a0 10.0.0.1 -- swa0 [sw0] swb0 -- 10.0.0.2 b0 rxe_b0      rxe_a0 a0 ------- b0 rxe_b0
#   rxe_a1 a1 10.0.1.1 -- swa1 [sw1] swb1 -- 10.0.1.2 b1 rxe_b1      rxe_a1 a1 ------- b1 rxe_b1
#
#   Each -- is a cable (a veth pair; between guests a datagram socket), each [sw] a bridge. Rails
#   are subnets of their own. `pull KIND on|off PORT` in the guest breaks a cable; pull.sh lists
#   the kinds.
#
# options:
#   -b PROGRAM     copy it, with the libraries it needs, to /app (first in PATH); repeats
#   -d FOLDER      copy the plug-ins in it, with the libraries they need, to where they stand here
#   -f FILE[:DST]  copy a file to /app, or to DST (absolute); repeats
#   -o FOLDER      what the command leaves in /out is put there
#   -k FOLDER      console and output are kept there when the command fails (default: CACHE/failed)
#   -t SECONDS     deadline of the command in the guest (default 120); the guest's own is 40 more
#   -m MIB         memory of a guest (default 1024)
#   -c FOLDER      cache (default: $RY_QEMU_CACHE, else build/qemu of this tree)
#   -2             two guests; the command runs in both, the status is that of guest 0, then guest 1
#
# exit: the command's; 124 deadline passed; 125 the guest did not get as far as the command, or died
#       under it; 2 bad use; 77 the parts cannot be had here
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${RY_QEMU_CACHE:-$here/../../build/qemu}
programs=()
plugins=()
files=()
out=
keep=
seconds=120
memory=1024
guests=1

bad() {
    echo "guest.sh: $1; see the head of $0" >&2
    exit 2
}

while getopts :b:d:f:o:k:t:m:c:2 o; do
    case $o in
        b) programs+=("$OPTARG") ;;
        d) plugins+=("$OPTARG") ;;
        f) files+=("$OPTARG") ;;
        o) out=$OPTARG ;;
        k) keep=$OPTARG ;;
        t) seconds=$OPTARG ;;
        m) memory=$OPTARG ;;
        c) cache=$OPTARG ;;
        2) guests=2 ;;
        :) bad "-$OPTARG needs a value" ;;
        *) bad "unknown option -$OPTARG" ;;
    esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || bad "no command given"
[[ $seconds =~ ^[0-9]{1,4}$ ]] || bad "-t takes whole seconds, not '$seconds'"
[[ $memory =~ ^[0-9]{2,5}$ ]] || bad "-m takes MiB, not '$memory'"

"$here/fetch.sh" "$cache"
cache=$(cd "$cache" && pwd)
keep=${keep:-$cache/failed}

find "$cache" -maxdepth 1 -name 'run.*' -mmin +30 -exec rm -rf {} + # of runs that were killed
dir=$(mktemp -d "$cache/run.XXXXXX")
pids=()
# shellcheck disable=SC2317 # called by the traps
clean() { # ends what this run started and removes what it wrote
    local p
    for p in "${pids[@]}"; do
        kill -TERM "$p" 2> /dev/null || true # timeout hands it on to its guest
        wait "$p" 2> /dev/null || true
    done
    rm -rf "$dir"
}
trap clean EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# --- the second archive: this run's programs and command ------------------------------------------
root=$dir/root
mkdir -p "$root/app"
[ ${#programs[@]} = 0 ] || "$here/closure.sh" "$root" app "${programs[@]}"
for d in "${plugins[@]}"; do
    "$here/closure.sh" "$root" "${d#/}" "$d"/*.so
done
for f in "${files[@]}"; do
    src=${f%%:*}
    dst=/app/${src##*/}
    case $f in *:*) dst=${f#*:} ;; esac
    [ -f "$src" ] || bad "no file $src to copy into the guest"
    install -D -m "$(stat -c %a "$src")" "$src" "$root$dst"
done
printf '%q ' "$@" > "$root/app/command"
(cd "$root" && find . -print0 | cpio -0 -o -H newc -R 0:0 --quiet) | gzip -1 > "$dir/run.gz"
cat "$cache/base.cpio.gz" "$dir/run.gz" > "$dir/initrd"
rm -rf "$root" "$dir/run.gz"

# --- boot -----------------------------------------------------------------------------------------
boot() { # node
    local n=$1 other=$((1 - $1)) rail net=()
    if [ "$guests" = 2 ]; then
        for rail in 0 1; do
            net+=(-netdev "dgram,id=n$rail,local.type=unix,local.path=$dir/r$rail.$n,$(
            )remote.type=unix,remote.path=$dir/r$rail.$other"
                -device "virtio-net-pci,netdev=n$rail,host_mtu=4500,$(
                )mac=52:54:00:00:0$rail:0$((n + 1))")
        done
    fi
    setpriv --pdeathsig TERM timeout -k 5 $((seconds + 40)) \
        qemu-system-x86_64 -nodefaults -no-user-config -display none \
        -M q35 -accel tcg,thread=multi -cpu max -smp 2 -m "$memory" -no-reboot \
        -kernel "$cache/vmlinuz" -initrd "$dir/initrd" \
        -append "console=ttyS0 quiet panic=-1 tsc=reliable ry.guests=$guests ry.node=$n $(
        )ry.seconds=$seconds" \
        -device isa-debug-exit,iobase=0xf4,iosize=4 \
        -serial "file:$dir/console.$n" -serial "file:$dir/output.$n" -serial "file:$dir/end.$n" \
        "${net[@]}" < /dev/null > "$dir/qemu.$n" 2>&1 &
    pids+=($!)
}

status() { # node, how qemu ended
    local n=$1 ended=$2 rc
    if [ "$ended" = 124 ] || [ "$ended" = 137 ]; then
        echo "guest.sh: guest $n was still running after $((seconds + 40)) s" >&2
        return 124
    fi
    if [ "$ended" != 33 ]; then
        echo "guest.sh: guest $n died (qemu ended with $ended): the console's last line is" \
            "'$(tail -n 1 "$dir/console.$n" 2> /dev/null | tr -d '\r')'" >&2
        return 125
    fi
    rc=$(head -n 1 "$dir/end.$n" | tr -d '\r' | sed -n 's/^rc=\([0-9]*\)$/\1/p')
    if [ "$rc" = 143 ]; then
        echo "guest.sh: the command was still running in guest $n after $seconds s" >&2
        return 124
    fi
    return "${rc:-125}"
}

for ((n = 0; n < guests; n++)); do
    boot $n
done
rc=0
for ((n = 0; n < guests; n++)); do
    ended=0
    wait "${pids[$n]}" || ended=$?
    one=0
    status $n $ended || one=$?
    [ $rc != 0 ] || rc=$one
    if [ "$guests" = 2 ]; then
        sed "s/^/$n: /" "$dir/output.$n"
    else
        cat "$dir/output.$n"
    fi
    if [ -n "$out" ]; then
        to=$out
        [ "$guests" = 1 ] || to=$out/$n
        mkdir -p "$to"
        tail -n +2 "$dir/end.$n" | tar -C "$to" -xf - 2> /dev/null || true
    fi
done
pids=()

if [ $rc != 0 ]; then
    rm -rf "$keep"
    mkdir -p "$keep"
    cp "$dir"/console.* "$dir"/output.* "$dir"/qemu.* "$keep/"
    echo "guest.sh: '$*' ended with $rc; logs are in $keep" >&2
fi
exit $rc
