#!/bin/bash
# fetch.sh CACHE: makes, once, what every guest boots from: CACHE/vmlinuz and CACHE/base.cpio.gz.
# The kernel package is unpacked, not installed. The tools of the guest are those of this machine's
# packages; missing ones are installed by apt-get when run as root. A second call needs no network.
# exit: 0 ready, 2 bad use, 77 something is missing that cannot be had here (the last line says
# what)
set -euo pipefail

version=3 # raise when what goes into the image changes
cache=${1:-}
if [ -z "$cache" ]; then
    echo "fetch.sh: no cache folder given: say fetch.sh FOLDER" >&2
    exit 2
fi
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
multi=x86_64-linux-gnu

skip() {
    echo "skipped: $1" >&2
    exit 77
}

sources=("$here/init.sh" "$here/pull.sh" "$here/closure.sh" "${BASH_SOURCE[0]}")
stamp="$version $(cat "${sources[@]}" | sha256sum | cut -c1-16)"
mkdir -p "$cache"
exec 9> "$cache/lock"
flock -w 300 9 || skip "another run has held $cache/lock for five minutes"
if [ "$(cat "$cache/stamp" 2> /dev/null)" = "$stamp" ] && [ -s "$cache/vmlinuz" ] \
    && [ -s "$cache/base.cpio.gz" ] && command -v qemu-system-x86_64 > /dev/null; then
    exit 0
fi

[ "$(uname -m)" = x86_64 ] || skip "the guest is made of x86-64 packages and this is $(uname -m)"
command -v apt-get > /dev/null || skip "no apt-get here, and the guest is made of Debian packages"

# --- packages of this machine -------------------------------------------------------------------
packages=(qemu-system-x86 seabios cpio busybox-static iproute2 ibverbs-providers ibverbs-utils
    libibverbs-dev perftest binutils)
missing=()
for p in "${packages[@]}"; do
    dpkg-query -W -f '${db:Status-Status}' "$p" 2> /dev/null | grep -x installed > /dev/null \
        || missing+=("$p")
done
if [ ${#missing[@]} -gt 0 ]; then
    [ "$(id -u)" = 0 ] || skip "needs ${missing[*]}: run 'apt-get install ${missing[*]}' as root"
    echo "installing ${missing[*]}" >&2
    {
        timeout 120 apt-get update -qq
        DEBIAN_FRONTEND=noninteractive timeout 400 apt-get install -y -qq \
            --no-install-recommends "${missing[@]}"
    } > "$cache/apt.log" 2>&1 || skip "apt-get could not install ${missing[*]}: see $cache/apt.log"
fi

# --- kernel -------------------------------------------------------------------------------------
# The meta package names the one that holds vmlinuz and modules (its cloud sister has no rdma_rxe).
if [ ! -d "$cache/kernel/boot" ]; then
    name=$(apt-cache depends linux-image-amd64 2> /dev/null \
        | awk '$1 == "Depends:" && $2 ~ /^linux-image-[0-9]/ { print $2; exit }')
    [ -n "$name" ] || skip "apt knows no linux-image-amd64: run apt-get update"
    echo "downloading $name" >&2
    rm -rf "$cache/deb" "$cache/kernel.part"
    mkdir -p "$cache/deb"
    (cd "$cache/deb" && timeout 300 apt-get download "$name") >> "$cache/apt.log" 2>&1 \
        || skip "apt-get could not download $name: see $cache/apt.log"
    dpkg-deb -x "$cache"/deb/linux-image-*.deb "$cache/kernel.part"
    mv "$cache/kernel.part" "$cache/kernel"
    rm -rf "$cache/deb"
fi
cp "$cache"/kernel/boot/vmlinuz-* "$cache/vmlinuz"

root=$cache/root.part
rm -rf "$root"
mkdir -p "$root"/{dev,proc,sys,tmp,run,out,app,etc/libibverbs.d,modules} \
    "$root/usr"/{bin,sbin,lib64,lib/$multi/libibverbs}
ln -s usr/bin "$root/bin"
ln -s usr/sbin "$root/sbin"
ln -s usr/lib "$root/lib"
ln -s usr/lib64 "$root/lib64"

# --- modules: those wanted, and what they depend on, in the order in which insmod takes them ------
wanted=(crc32_generic rdma_rxe rdma_ucm veth bridge sch_netem sch_tbf
    virtio_pci virtio_net)
tree=$(echo "$cache"/kernel/lib/modules/*)
declare -A place=() taken=()
while IFS= read -r f; do
    m=${f##*/}
    m=${m%.ko*}
    place[${m//-/_}]=$f
done < <(find "$tree/kernel" -name '*.ko*')

: > "$root/modules/order"
take() { # depth first, so that a module comes after what it needs
    local m=${1//-/_} dep out
    [ -z "${taken[$m]:-}" ] || return 0
    taken[$m]=1
    [ -n "${place[$m]:-}" ] || return 0 # built into the kernel
    out=$root/modules/$m.ko
    case ${place[$m]} in
        *.xz) xz -dc "${place[$m]}" > "$out" ;;
        *.zst) zstd -qdc "${place[$m]}" > "$out" ;;
        *) cp "${place[$m]}" "$out" ;;
    esac
    local deps
    deps=$(tr '\0' '\n' < "$out" | sed -n 's/^depends=//p' | head -n 1)
    for dep in ${deps//,/ }; do
        take "$dep"
    done
    echo "$m" >> "$root/modules/order"
}
for m in "${wanted[@]}"; do
    take "$m"
done
[ -s "$root/modules/rdma_rxe.ko" ] || skip "the kernel in $cache/kernel has no rdma_rxe module"

# --- programs -----------------------------------------------------------------------------------
cp "$(command -v busybox)" "$root/usr/bin/busybox"
ln -s busybox "$root/usr/bin/sh"
"$here/closure.sh" "$root" usr/sbin /sbin/ip /sbin/tc /sbin/bridge "$(command -v rdma)"
"$here/closure.sh" "$root" usr/bin "$(command -v ib_write_bw)" "$(command -v ib_write_lat)" \
    "$(command -v ibv_devinfo)" "$(command -v ibv_devices)"
provider=$(echo /usr/lib/$multi/libibverbs/librxe-rdmav*.so)
"$here/closure.sh" "$root" "usr/lib/$multi/libibverbs" "$provider"
cp /etc/libibverbs.d/rxe.driver "$root/etc/libibverbs.d/"
install -m 755 "$here/init.sh" "$root/init"
install -m 755 "$here/pull.sh" "$root/usr/bin/pull"
printf 'root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n' > "$root/etc/passwd"
printf '127.0.0.1 localhost\n10.0.0.1 a\n10.0.0.2 b\n' > "$root/etc/hosts"

(cd "$root" && find . -print0 | cpio -0 -o -H newc -R 0:0 --quiet) | gzip -6 > "$cache/base.part"
mv "$cache/base.part" "$cache/base.cpio.gz"
rm -rf "$root"
echo "$stamp" > "$cache/stamp"
