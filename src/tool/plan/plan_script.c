/* SPDX-License-Identifier: Apache-2.0 */
/* The script: a function a phase, each of which looks first and does only what is missing, so that
 * it may be run again at any time. RAILYARD_PLAN_ROOT puts its files elsewhere, for tests. */
#include <stdio.h>
#include <string.h>

#include "plan.h"

static void write_head(const struct ry_plan *plan, FILE *out)
{
    fprintf(
        out,
        "#!/usr/bin/env bash\n"
        "# Made by `railyard plan --script` for %s, versions %s. Run it as often as you like.\n"
        "set -euo pipefail\n"
        "if [ \"$(uname -m)\" != x86_64 ]; then\n"
        "    echo \"this script is for x86_64, not for $(uname -m)\" >&2\n"
        "    exit 2\n"
        "fi\n\n"
        "root=${RAILYARD_PLAN_ROOT:-}\n"
        "prefix=%s\n"
        "if [ \"$(id -u)\" -eq 0 ] || [ -n \"$root\" ]; then sudo() { \"$@\"; }; fi\n\n"
        "say() { printf '== %%s: %%s\\n' \"$1\" \"$2\"; }\n"
        "own() { [ -w \"$root$prefix\" ] || { sudo mkdir -p \"$root$prefix\" && "
        "sudo chown \"$(id -u)\" \"$root$prefix\"; }; }\n"
        "has_package() { dpkg-query -W -f='${Status}' \"$1\" 2>/dev/null | grep -q 'ok installed'; "
        "}\n\n",
        plan->distribution_text, plan->set->name, plan->prefix);
}

static void write_toolkit(const struct ry_plan *plan, FILE *out)
{
    const char *cuda = plan->set->cuda;
    int major = (int)strcspn(cuda, ".");
    fprintf(out,
            "toolkit() {\n"
            "    if [ -x \"$root/usr/local/cuda-%s/bin/nvcc\" ]; then\n"
            "        say toolkit 'done'\n"
            "        return\n"
            "    fi\n"
            "    if ! has_package cuda-keyring; then\n"
            "        local keyring\n"
            "        keyring=$(mktemp --suffix=.deb)\n"
            "        curl -fsSLo \"$keyring\" %s/%s/x86_64/cuda-keyring_1.1-1_all.deb\n"
            "        sudo dpkg -i \"$keyring\"\n"
            "        rm -f \"$keyring\"\n"
            "    fi\n"
            "    sudo apt-get update\n"
            "    sudo apt-get install -y cuda-toolkit-%.*s-%s\n"
            "}\n\n",
            cuda, ry_plan_sites.cuda, plan->distribution->cuda_repo, major, cuda,
            cuda + major + 1);
}

static void write_driver_stack(const struct ry_plan *plan, FILE *out)
{
    fprintf(out,
            "driver_stack() {\n"
            "    if has_package doca-ofed; then\n"
            "        say driver-stack 'done'\n"
            "        return\n"
            "    fi\n"
            "    sudo mkdir -p \"$root/etc/apt/keyrings\" \"$root/etc/apt/sources.list.d\"\n"
            "    curl -fsSL %s/GPG-KEY-Mellanox.pub | sudo tee "
            "\"$root/etc/apt/keyrings/doca.asc\" >/dev/null\n"
            "    echo 'deb [signed-by=/etc/apt/keyrings/doca.asc] %s/%s/%s/x86_64/ ./' |\n"
            "        sudo tee \"$root/etc/apt/sources.list.d/doca.list\" >/dev/null\n"
            "    sudo apt-get update\n"
            "    sudo apt-get install -y doca-ofed\n"
            "    touch_reboot\n"
            "}\n\n",
            ry_plan_sites.doca, ry_plan_sites.doca, plan->set->doca,
            plan->distribution->doca_repo);
}

static void write_options(const struct ry_plan *plan, FILE *out)
{
    fprintf(out,
            "module_options() {\n"
            "    local file=\"$root/etc/modprobe.d/nvidia-railyard.conf\"\n"
            "    local line='options nvidia NVreg_EnableStreamMemOPs=1 "
            "NVreg_RegistryDwords=\"PeerMappingOverride=1;\"'\n"
            "    if [ -f \"$file\" ] && grep -qxF \"$line\" \"$file\"; then\n"
            "        say module-options 'done'\n"
            "        return\n"
            "    fi\n"
            "    sudo mkdir -p \"$root/etc/modprobe.d\"\n"
            "    printf '%%s\\n' \"$line\" | sudo tee \"$file\" >/dev/null\n"
            "    sudo %s\n"
            "    touch_reboot\n"
            "}\n\n",
            plan->distribution->initramfs);
}

/* The script ends where a reboot is due; run again after it, it goes on from there. */
static void write_reboot(FILE *out)
{
    fputs("reboot_mark=\"$root/run/railyard-reboot\"\n"
          "touch_reboot() {\n"
          "    sudo mkdir -p \"$root/run\"\n"
          "    sudo touch \"$reboot_mark\"\n"
          "}\n\n"
          "reboot_if_due() {\n"
          "    if [ ! -e \"$reboot_mark\" ]; then\n"
          "        say reboot 'done'\n"
          "        return\n"
          "    fi\n"
          "    say reboot 'drivers changed: type \"sudo reboot\", then run this script again'\n"
          "    exit 0\n"
          "}\n\n",
          out);
}

static void write_dependencies(const struct ry_plan *plan, FILE *out)
{
    fprintf(out,
            "build_dependencies() {\n"
            "    local missing=() package\n"
            "    for package in %s; do\n"
            "        has_package \"$package\" || missing+=(\"$package\")\n"
            "    done\n"
            "    if [ \"${#missing[@]}\" -eq 0 ]; then\n"
            "        say build-dependencies 'done'\n"
            "        return\n"
            "    fi\n"
            "    sudo apt-get update\n"
            "    sudo apt-get install -y \"${missing[@]}\"\n"
            "}\n\n",
            plan->distribution->build_packages);
}

/* A clone at a given version whose tree must be clean: what is built is what its version says. */
static void write_clone(FILE *out)
{
    fputs("# clone URL VERSION FOLDER\n"
          "clone() {\n"
          "    if [ ! -d \"$3/.git\" ]; then\n"
          "        git clone --depth 1 --branch \"$2\" \"$1\" \"$3\"\n"
          "    fi\n"
          "    if [ -n \"$(git -C \"$3\" status --porcelain --untracked-files=no)\" ]; then\n"
          "        say \"$3\" 'has changes that no commit holds: git stash them first' >&2\n"
          "        exit 1\n"
          "    fi\n"
          "}\n\n",
          out);
}

static void write_gdrcopy(const struct ry_plan *plan, FILE *out)
{
    fprintf(out,
            "gdrcopy() {\n"
            "    if [ -f \"$root$prefix/gdrcopy/include/gdrapi.h\" ]%s; then\n"
            "        say gdrcopy 'done'\n"
            "        return\n"
            "    fi\n"
            "    clone %s v%s \"$root$prefix/src/gdrcopy\"\n"
            "    make -C \"$root$prefix/src/gdrcopy\" prefix=\"$root$prefix/gdrcopy\" lib "
            "lib_install\n"
            "%s"
            "}\n\n",
            plan->wants_gdrdrv ? " && grep -q '^gdrdrv ' /proc/modules" : "",
            ry_plan_sites.gdrcopy, plan->set->gdrcopy,
            plan->wants_gdrdrv
                ? "    sudo make -C \"$root$prefix/src/gdrcopy\" driver driver_install\n"
                  "    sudo modprobe gdrdrv\n"
                : "");
}

static void write_nvshmem(const struct ry_plan *plan, FILE *out)
{
    char arch[16];
    snprintf(arch, sizeof arch, "%u", plan->sm ? plan->sm : 90);
    fprintf(out,
            "nvshmem() {\n"
            "    local source=\"$root$prefix/src/nvshmem\" mpi=%s\n"
            "    if [ -f \"$root$prefix/nvshmem/.version-%s\" ]; then\n"
            "        say nvshmem 'done'\n"
            "        return\n"
            "    fi\n"
            "    clone %s v%s \"$source\"\n"
            "    cmake -G Ninja -S \"$source\" -B \"$source/build\" \\\n"
            "        -DCMAKE_INSTALL_PREFIX=\"$root$prefix/nvshmem\" \\\n"
            "        -DCMAKE_CUDA_COMPILER=/usr/local/cuda-%s/bin/nvcc \\\n"
            "        -DCMAKE_CUDA_ARCHITECTURES=%s -DCUDA_HOME=/usr/local/cuda-%s \\\n"
            "        -DNVSHMEM_IBGDA_SUPPORT=ON -DNVSHMEM_IBRC_SUPPORT=ON \\\n"
            "        -DNVSHMEM_USE_GDRCOPY=ON -DGDRCOPY_HOME=\"$root$prefix/gdrcopy\" \\\n"
            "        -DNVSHMEM_MPI_SUPPORT=ON -DMPI_HOME=\"$mpi\" \\\n"
            "        -DMPI_C_INCLUDE_DIRS=\"$mpi/include\" "
            "-DMPI_CXX_COMPILER=/usr/bin/mpicxx -DMPI_C_COMPILER=/usr/bin/mpicc \\\n"
            "        -DNVSHMEM_BUILD_EXAMPLES=OFF -DNVSHMEM_BUILD_TESTS=OFF \\\n"
            "        -DNVSHMEM_BUILD_PYTHON_LIB=OFF -DNVSHMEM_BUILD_HYDRA_LAUNCHER=OFF\n"
            "    cmake --build \"$source/build\" --target install\n"
            "    touch \"$root$prefix/nvshmem/.version-%s\"\n"
            "}\n\n",
            plan->distribution->mpi_home, plan->set->nvshmem, ry_plan_sites.nvshmem,
            plan->set->nvshmem, plan->set->cuda, arch, plan->set->cuda, plan->set->nvshmem);
}

static void write_pytorch(const struct ry_plan *plan, FILE *out)
{
    fprintf(out,
            "venv=\"$root$prefix/venv\"\n"
            "pytorch() {\n"
            "    if [ ! -x \"$venv/bin/python\" ]; then\n"
            "        python3 -m venv \"$venv\"\n"
            "    fi\n"
            "    if [ \"$(\"$venv/bin/python\" -c 'import torch; print(torch.__version__)' "
            "2>/dev/null)\" = %s+%s ]; then\n"
            "        say pytorch 'done'\n"
            "        return\n"
            "    fi\n"
            "    \"$venv/bin/python\" -m pip install numpy setuptools wheel ninja\n"
            "    \"$venv/bin/python\" -m pip install torch==%s --index-url %s/%s\n"
            "}\n\n",
            plan->set->torch, plan->set->torch_cuda, plan->set->torch, ry_plan_sites.torch,
            plan->set->torch_cuda);
}

static void write_deepep(const struct ry_plan *plan, FILE *out)
{
    unsigned sm = plan->sm ? plan->sm : 90;
    fprintf(
        out,
        "deepep() {\n"
        "    local source=\"$root$prefix/src/DeepEP\" mark=\"$root$prefix/src/.deepep-%s-%u\"\n"
        "    if [ -f \"$mark\" ]; then\n"
        "        say deepep 'done'\n"
        "        return\n"
        "    fi\n"
        "    clone %s %s \"$source\"\n"
        "    if ! grep -qs DEEP_EP_DEVICE_TO_HCA_MAPPING \"$source/deep_ep/buffer.py\"; then\n"
        "        curl -fsSL %s/pull/%s.diff | git -C \"$source\" apply\n"
        "        git -C \"$source\" -c user.name=railyard -c user.email=railyard@localhost \\\n"
        "            commit -qam 'GPU-NIC map'\n"
        "    fi\n"
        "    rm -rf \"$source/build\"\n"
        "    NVSHMEM_DIR=\"$root$prefix/nvshmem\" CUDA_HOME=/usr/local/cuda-%s "
        "TORCH_CUDA_ARCH_LIST=%u.%u \\\n"
        "        %s\"$venv/bin/python\" -m pip install --no-build-isolation --force-reinstall "
        "--no-deps \"$source\"\n"
        "    touch \"$mark\"\n"
        "}\n\n",
        plan->set->name, sm, ry_plan_sites.deepep, plan->set->deepep, ry_plan_sites.deepep,
        plan->set->deepep_pull, plan->set->cuda, sm / 10, sm % 10,
        sm < 90 ? "DISABLE_SM90_FEATURES=1 " : "");
}

static void write_environment(FILE *out)
{
    fputs(
        "environment() {\n"
        "    local file=\"$root/etc/profile.d/railyard.sh\" fresh\n"
        "    fresh=$(printf \"export NVSHMEM_DIR=%s/nvshmem\\nexport PATH=%s/venv/bin:\\$PATH\\n\""
        " \"$prefix\" \"$prefix\"\n"
        "        railyard env --for deepep)\n"
        "    if [ -f \"$file\" ] && [ \"$fresh\" = \"$(cat \"$file\")\" ]; then\n"
        "        say environment 'done'\n"
        "        return\n"
        "    fi\n"
        "    sudo mkdir -p \"$root/etc/profile.d\"\n"
        "    printf '%s\\n' \"$fresh\" | sudo tee \"$file\" >/dev/null\n"
        "}\n\n",
        out);
}

static void write_tests(const struct ry_plan *plan, FILE *out)
{
    fprintf(out,
            "tests() {\n"
            "    local mark=\"$root/var/lib/railyard/plan-tests\"\n"
            "    if [ -f \"$mark\" ] && [ \"$(cat \"$mark\")\" = %s ]; then\n"
            "        say tests 'done'\n"
            "        return\n"
            "    fi\n"
            "    railyard doctor\n"
            "    \"$venv/bin/python\" -c 'import deep_ep'\n"
            "    \"$venv/bin/python\" \"$root$prefix/src/DeepEP/tests/test_intranode.py\"\n"
            "    sudo mkdir -p \"$root/var/lib/railyard\"\n"
            "    echo %s | sudo tee \"$mark\" >/dev/null\n"
            "}\n\n",
            plan->set->name, plan->set->name);
}

static int is_wanted(const struct ry_plan *plan, unsigned only, unsigned phase)
{
    return plan->states[phase] == RY_PLAN_NEEDED && (only == RY_PHASES || only == phase);
}

void ry_plan_write_script(const struct ry_plan *plan, unsigned only, FILE *out)
{
    static const char *const calls[RY_PHASES] = {
        "toolkit", "driver_stack", "module_options", "reboot_if_due", "build_dependencies",
        "gdrcopy", "nvshmem",      "pytorch",        "deepep",        "environment",
        "tests"};
    unsigned count = 0;
    write_head(plan, out);
    int clones = is_wanted(plan, only, RY_PHASE_GDRCOPY) ||
                 is_wanted(plan, only, RY_PHASE_NVSHMEM) || is_wanted(plan, only, RY_PHASE_DEEPEP);
    if (clones)
        write_clone(out);
    int restarts = is_wanted(plan, only, RY_PHASE_DRIVER_STACK) ||
                   is_wanted(plan, only, RY_PHASE_MODULE_OPTIONS) ||
                   is_wanted(plan, only, RY_PHASE_REBOOT);
    if (restarts)
        write_reboot(out);
    if (is_wanted(plan, only, RY_PHASE_TOOLKIT))
        write_toolkit(plan, out);
    if (is_wanted(plan, only, RY_PHASE_DRIVER_STACK))
        write_driver_stack(plan, out);
    if (is_wanted(plan, only, RY_PHASE_MODULE_OPTIONS))
        write_options(plan, out);
    if (is_wanted(plan, only, RY_PHASE_BUILD_DEPENDENCIES))
        write_dependencies(plan, out);
    if (is_wanted(plan, only, RY_PHASE_GDRCOPY))
        write_gdrcopy(plan, out);
    if (is_wanted(plan, only, RY_PHASE_NVSHMEM))
        write_nvshmem(plan, out);
    if (is_wanted(plan, only, RY_PHASE_PYTORCH))
        write_pytorch(plan, out);
    else if (is_wanted(plan, only, RY_PHASE_DEEPEP) || is_wanted(plan, only, RY_PHASE_TESTS))
        fputs("venv=\"$root$prefix/venv\"\n\n", out);
    if (is_wanted(plan, only, RY_PHASE_DEEPEP))
        write_deepep(plan, out);
    if (is_wanted(plan, only, RY_PHASE_ENVIRONMENT))
        write_environment(out);
    if (is_wanted(plan, only, RY_PHASE_TESTS))
        write_tests(plan, out);
    if (clones || is_wanted(plan, only, RY_PHASE_PYTORCH))
        fputs("own\n", out);
    for (unsigned i = 0; i < RY_PHASES; i++) {
        int run = is_wanted(plan, only, i) || (i == RY_PHASE_REBOOT && restarts);
        if (run)
            fprintf(out, "%s\n", calls[i]);
        count += (unsigned)run;
    }
    if (!count)
        fputs("say plan 'nothing to do'\n", out);
}
