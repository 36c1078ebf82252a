#!/usr/bin/env bash
# cmake --install into a temporary prefix, which is then moved: a program finds the library through
# pkg-config or find_package, in C11 and C++17, links it shared and static, and runs.
set -euo pipefail
build=${RY_TEST_BUILD:?}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

cmake --install "$build" --prefix "$tmp/first" >"$tmp/log" 2>&1 || {
    cat "$tmp/log"
    exit 1
}
mv "$tmp/first" "$tmp/prefix"
prefix=$tmp/prefix
pc=$(find "$prefix" -name railyard.pc)
export PKG_CONFIG_PATH
PKG_CONFIG_PATH=$(dirname "$pc")
libdir=$(pkg-config --variable=libdir railyard)

cat >"$tmp/app.c" <<'EOF'
#include <railyard/status.h>
#include <stdio.h>
int main(void)
{
    puts(ry_version());
    return ry_status_text(RY_OK)[0] != 'o';
}
EOF
version=$(pkg-config --modversion railyard)
expect() {
    [ "$2" = "$version" ] && return
    echo "$1 says version '$2', pkg-config says '$version'"
    exit 1
}

read -ra shared < <(pkg-config --cflags --libs railyard)
gcc -std=c11 -Wall -Wextra -Wpedantic -Werror "$tmp/app.c" -o "$tmp/shared" "${shared[@]}"
expect "the program on the shared library" "$(LD_LIBRARY_PATH=$libdir "$tmp/shared")"
if "$tmp/shared" >/dev/null 2>&1 && [ -z "${LD_LIBRARY_PATH:-}" ]; then
    echo "the shared program runs without the installed library: is another railyard installed?"
    exit 1
fi
readelf -d "$tmp/shared" | grep -q 'NEEDED.*librailyard\.so\.[0-9]*\]' || {
    echo "the program does not ask for librailyard.so by its versioned name"
    exit 1
}

if command -v g++ >/dev/null; then
    cp "$tmp/app.c" "$tmp/app.cpp"
    for header in "$prefix"/include/railyard/*.h; do
        echo "#include <railyard/$(basename "$header")>"
    done >>"$tmp/app.cpp"
    g++ -std=c++17 -Wall -Wextra -Wpedantic -Werror "$tmp/app.cpp" -o "$tmp/cxx" "${shared[@]}"
    expect "the program in C++17" "$(LD_LIBRARY_PATH=$libdir "$tmp/cxx")"
fi

cat >"$tmp/CMakeLists.txt" <<'EOF'
cmake_minimum_required(VERSION 3.22)
project(app C)
find_package(railyard 0.1 REQUIRED)
add_executable(app app.c)
target_link_libraries(app PRIVATE railyard::railyard)
EOF
{ cmake -S "$tmp" -B "$tmp/b" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" && cmake --build "$tmp/b"; } \
    >"$tmp/log" 2>&1 || {
    cat "$tmp/log"
    echo "find_package(railyard) does not make a program"
    exit 1
}
expect "the program made by find_package" "$("$tmp/b/app")"
if cmake -S "$tmp" -B "$tmp/b2" -G Ninja -DCMAKE_PREFIX_PATH="$tmp/none" >/dev/null 2>&1; then
    echo "find_package finds a railyard elsewhere: is another one installed?"
    exit 1
fi

read -ra static < <(pkg-config --static --cflags --libs railyard)
for i in "${!static[@]}"; do
    [ "${static[$i]}" = -lrailyard ] && static[i]=$libdir/librailyard.a
done
gcc -std=c11 "$tmp/app.c" -o "$tmp/static" "${static[@]}"
expect "the program on the static library" "$("$tmp/static")"

expect "the installed command" "$("$prefix/bin/railyard" --version | sed 's/^railyard //')"
for page in man1/railyard.1 man3/railyard_status.3 man3/ry_version.3; do
    [ -s "$prefix/share/man/$page" ] || {
        echo "the manual page $page was not installed"
        exit 1
    }
done
echo "installed, linked shared and static, ran"
