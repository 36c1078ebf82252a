#!/usr/bin/env bash
# shellcheck disable=SC2016 # stand-ins are written with their own variables
# The script that `railyard plan --script` prints: shellcheck finds nothing, it stops for the
# reboot, goes on after it, and a further run does nothing. Package clients and compilers are
# stand-ins that log what they are asked and leave the files that the real ones would.
set -euo pipefail
railyard=${RY_TEST_BIN:?}
records=${RY_TEST_SOURCE:?}/test/records
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
fail() { echo "plan script: $*"; exit 1; }

if command -v shellcheck >/dev/null; then
    for record in "$records"/*/; do
        for handler in gpu cpu; do
            "$railyard" plan --script --handler "$handler" --root "$record" >"$tmp/s.sh"
            shellcheck "$tmp/s.sh" || fail "shellcheck complains for $record"
        done
    done
    # every distribution that the table has, all phases
    for release in "ubuntu 22.04 ubuntu2204" "ubuntu 24.04 ubuntu2404" "debian 12 debian12"; do
        read -r id version repo <<<"$release"
        rm -rf "$tmp/release"
        cp -r "$records/b200-bare" "$tmp/release"
        printf 'ID=%s\nVERSION_ID="%s"\n' "$id" "$version" >"$tmp/release/etc/os-release"
        : >"$tmp/release/facts/packages"
        "$railyard" plan --root "$tmp/release" | grep -q "^blocked" &&
            fail "something is blocked on $id $version"
        "$railyard" plan --script --root "$tmp/release" >"$tmp/s.sh"
        shellcheck "$tmp/s.sh" || fail "shellcheck complains for $id $version"
        grep -q "repos/$repo/x86_64/cuda-keyring" "$tmp/s.sh" || fail "not the site of $repo"
    done
fi

mkdir -p "$tmp/bin" "$tmp/root"
log=$tmp/log
stub() {
    printf '#!/usr/bin/env bash\necho "%s $*" >>"%s"\n%s\n' "$1" "$log" "$2" >"$tmp/bin/$1"
    chmod +x "$tmp/bin/$1"
}
stub apt-get "[ \"\$1\" = install ] || exit 0
shift 2; printf '%s\n' \"\$@\" >>$tmp/packages
case \"\$*\" in *cuda-toolkit*) mkdir -p $tmp/root/usr/local/cuda-12.9/bin
    touch $tmp/root/usr/local/cuda-12.9/bin/nvcc
    chmod +x $tmp/root/usr/local/cuda-12.9/bin/nvcc;; esac"
printf '#!/usr/bin/env bash\ngrep -qx "${!#}" %s 2>/dev/null && echo "install ok installed"\n' \
    "$tmp/packages" >"$tmp/bin/dpkg-query"
chmod +x "$tmp/bin/dpkg-query"
stub dpkg "echo cuda-keyring >>$tmp/packages"
stub curl "for a in \"\$@\"; do case \$a in *.deb) touch \"\$a\" 2>/dev/null;; esac; done; true"
stub update-initramfs true
stub git "case \"\$*\" in *status*) sed -i '\$d' $log;;
    clone*) mkdir -p \"\${!#}/.git\";; esac"
stub make "mkdir -p $tmp/root/opt/railyard/gdrcopy/include
touch $tmp/root/opt/railyard/gdrcopy/include/gdrapi.h"
stub cmake "mkdir -p $tmp/root/opt/railyard/nvshmem"
stub railyard "echo export NVSHMEM_HCA_PREFIX=mlx5; sed -i '\$d' $log"
stub python3 "mkdir -p \"\${!#}/bin\"; cp $tmp/bin/venv-python \"\${!#}/bin/python\""
printf '#!/usr/bin/env bash
case "$*" in *__version__*) [ -e %s ] && echo 2.9.1+cu129; exit 0;; esac
echo "python $*" >>%s\ncase "$*" in *torch==*) touch %s;; esac\n' "$tmp/torch" "$log" "$tmp/torch" \
    >"$tmp/bin/venv-python"
chmod +x "$tmp/bin/venv-python"
touch "$tmp/packages" "$log"

"$railyard" plan --script --root "$records/b200-bare" >"$tmp/s.sh"
run() {
    RAILYARD_PLAN_ROOT=$tmp/root PATH=$tmp/bin:$PATH timeout 50 bash "$tmp/s.sh" >"$tmp/out" 2>&1 ||
        { cat "$tmp/out"; fail "run $1 failed"; }
}

run 1
grep -q 'reboot: drivers changed' "$tmp/out" || fail "the first run did not stop for the reboot"
grep -q 'apt-get install -y doca-ofed' "$log" || fail "the driver stack was not installed"
grep -q clone "$log" && fail "the first run went on past the reboot"
grep -q 'PeerMappingOverride=1' "$tmp/root/etc/modprobe.d/nvidia-railyard.conf" ||
    fail "the module options were not written"

rm -rf "$tmp/root/run" # what a reboot does
run 2
for word in 'cmake --build' 'DNVSHMEM_IBGDA_SUPPORT=ON' 'DNVSHMEM_BUILD_EXAMPLES=OFF' \
    'DNVSHMEM_BUILD_PYTHON_LIB=OFF' 'DCMAKE_CUDA_ARCHITECTURES=100' 'torch==2.9.1' \
    'pull/466.diff' 'git clone --depth 1 --branch v3.5.19-1' \
    'apt-get install -y build-essential'; do
    grep -q -e "$word" "$log" || fail "no '$word' in the second run"
done
grep -q 'export NVSHMEM_HCA_PREFIX=mlx5' "$tmp/root/etc/profile.d/railyard.sh" ||
    fail "the environment was not written"

: >"$log"
run 3
[ -s "$log" ] && { cat "$log"; fail "the third run did something"; }
[ "$(grep -c ': done$' "$tmp/out")" -eq 11 ] || { cat "$tmp/out"; fail "not all phases are done"; }

"$railyard" plan --script --root "$records/b200-ready" >"$tmp/s.sh"
grep -q '^nvshmem()' "$tmp/s.sh" && fail "a phase that is done is in the script"

for state in "b200-bare needed deepep" "b200-ready done nvshmem" "laptop blocked toolkit"; do
    read -r record want phase <<<"$state"
    "$railyard" plan --root "$records/$record" | grep -q "^$want *$phase " ||
        fail "$phase of $record is not $want"
done
cp -r "$records/b200-ready" "$tmp/record"
sed -i 's/^\(deepep .*\)clean=1/\1clean=0/' "$tmp/record/facts/sources"
"$railyard" plan --root "$tmp/record" | grep -q '^blocked *deepep ' ||
    fail "a source tree with changes does not block"
echo 'ID=arch' >"$tmp/record/etc/os-release"
code=0
"$railyard" plan --root "$tmp/record" --script >/dev/null 2>"$tmp/err" || code=$?
[ "$code" -eq 2 ] || fail "an unknown distribution gave exit $code"
grep -q 'no recipe for arch' "$tmp/err" || fail "an unknown distribution was not named"
