#!/usr/bin/env python3
"""Makes the records in this folder: machines described by hand, in the form that `railyard doctor
--capture` writes. Run it after a change and commit what it wrote; each record's
source.txt says what
the description rests on."""

import os
import shutil

HERE = os.path.dirname(os.path.abspath(__file__))
NVIDIA, MELLANOX, BROADCOM, INTEL = "10de", "15b3", "1000", "8086"


def mask(cpus):
    value = sum(1 << c for c in cpus)
    words = []
    while True:
        words.append("0x%08x" % (value & 0xFFFFFFFF))
        value >>= 32
        if not value:
            return ",".join(reversed(words))


class Device:
    """A PCI function, or a bridge when it has children."""

    def __init__(
        self, kind, name="", children=(), vendor=BROADCOM, device="c030", pci_class="0604"
    ):
        self.kind, self.name, self.children = kind, name, list(children)
        self.vendor, self.device, self.pci_class, self.bus = vendor, device, pci_class, None


def gpu(product="2330"):
    return Device("gpu", vendor=NVIDIA, device=product, pci_class="0302")


def nic(*names, device="1021", pci_class="0200"):
    """One card: a function for each name."""
    return [
        Device("nic", name, vendor=MELLANOX, device=device, pci_class=pci_class) for name in names
    ]


def card(*names, **kw):
    """A card alone under its bridge."""
    return Device("bridge", children=nic(*names, **kw))


def lone(dev):
    return Device("bridge", children=[dev])


def switch(*below):
    """A PCIe switch: one port up, a port down for each of `below`."""
    return Device(
        "bridge",
        children=[Device("bridge", children=b if isinstance(b, list) else [b]) for b in below],
    )


class Machine:
    def __init__(self, name, source, nodes, cpus_per_node, threads=True):
        self.name, self.source = name, source
        self.files, self.gpus, self.nics, self.hosts = {}, [], {}, {n: [] for n in range(nodes)}
        self.cpus = []
        total = nodes * cpus_per_node
        for n in range(nodes):
            cpus = list(range(n * cpus_per_node, (n + 1) * cpus_per_node))
            self.cpus.append(cpus + ([c + total for c in cpus] if threads else []))
        self.files["source.txt"] = source.strip() + "\n"
        self.gp, self.next_bus = 1, 0

    def host_bridge(self, node, *root_ports):
        """One host bridge; each of root_ports is what hangs below one of its root ports."""
        self.hosts[node].append(list(root_ports))

    def put(self, path, text):
        self.files[path] = text if text.endswith("\n") or not text else text + "\n"

    # hwloc's XML
    def obj(self, out, indent, kind, attrs, empty):
        self.gp += 1
        out.append(
            "%s<object type=\"%s\" %sgp_index=\"%d\"%s"
            % ("  " * indent, kind, attrs + " " if attrs else "", self.gp, "/>" if empty else ">")
        )

    def sets(self, cpus, nodes):
        c, n = mask(cpus), mask(nodes)
        return 'cpuset="%s" complete_cpuset="%s" nodeset="%s" complete_nodeset="%s"' % (
            c,
            c,
            n,
            n,
        )

    def buses_below(self, dev):
        return sum(1 + self.buses_below(c) for c in dev.children if c.children)

    def emit_pci(self, out, indent, dev, bus, slot, function, depth):
        dev.bus = "0000:%02x:%02x.%x" % (bus, slot, function)
        common = (
            'pci_busid="%s" pci_type="%s [%s:%s] [0000:0000] 00" pci_link_speed="63.015385"'
            % (dev.bus, dev.pci_class, dev.vendor, dev.device)
        )
        if dev.children:
            self.next_bus += 1
            own = self.next_bus
            attrs = 'bridge_type="1-1" depth="%d" bridge_pci="0000:[%02x-%02x]" ' % (
                depth,
                own,
                own + self.buses_below(dev),
            )
            self.obj(out, indent, "Bridge", attrs + common, False)
            bridges = [c for c in dev.children if c.children]
            leaves = [c for c in dev.children if not c.children]
            for i, c in enumerate(leaves):
                self.emit_pci(out, indent + 1, c, own, 0, i, depth + 1)
            for i, c in enumerate(bridges):
                self.emit_pci(out, indent + 1, c, own, i + 1, 0, depth + 1)
            out.append("  " * indent + "</object>")
        elif dev.kind == "nic" and dev.name:
            self.obj(out, indent, "PCIDev", common, False)
            self.obj(out, indent + 1, "OSDev", 'name="%s" osdev_type="3"' % dev.name, True)
            out.append("  " * indent + "</object>")
        else:
            self.obj(out, indent, "PCIDev", common, True)
        if dev.kind == "gpu":
            self.gpus.append(dev)
        elif dev.kind == "nic":
            self.nics[dev.name] = dev

    def topology(self):
        nodes = list(range(len(self.cpus)))
        every = [c for cpus in self.cpus for c in cpus]
        out = [
            '<?xml version="1.0" encoding="UTF-8"?>',
            '<!DOCTYPE topology SYSTEM "hwloc2.dtd">',
            '<topology version="2.0">',
        ]
        self.obj(
            out,
            1,
            "Machine",
            'os_index="0" %s allowed_cpuset="%s" allowed_nodeset="%s"'
            % (self.sets(every, nodes), mask(every), mask(nodes)),
            False,
        )
        base = 0
        for n in nodes:
            sets = self.sets(self.cpus[n], [n])
            self.obj(out, 2, "Package", 'os_index="%d" %s' % (n, sets), False)
            self.obj(
                out,
                3,
                "NUMANode",
                'os_index="%d" %s local_memory="1082331758592"' % (n, sets),
                True,
            )
            for c in self.cpus[n]:
                self.obj(out, 3, "PU", 'os_index="%d" %s' % (c, self.sets([c], [n])), True)
            for ports in self.hosts[n]:
                total = sum(1 + self.buses_below(p) for p in ports if p.children)
                self.obj(
                    out,
                    3,
                    "Bridge",
                    'bridge_type="0-1" depth="0" bridge_pci="0000:[%02x-%02x]"'
                    % (base, base + total),
                    False,
                )
                self.next_bus = base
                for i, p in enumerate(ports):
                    self.emit_pci(out, 4, p, base, i + 1, 0, 1)
                out.append("      </object>")
                base += total + 1
            out.append("    </object>")
        out += ["  </object>", "</topology>"]
        self.put("topology.xml", "\n".join(out))

    # sysfs of one RDMA device
    def rdma(
        self,
        name,
        layer="InfiniBand",
        rate="400 Gb/sec (4X NDR)",
        net=None,
        ports=1,
        pf=None,
        mtu=None,
        active=True,
    ):
        dev = self.nics[name]
        base = "sys/class/infiniband/%s" % name
        self.put(
            base + "/device/uevent",
            "DRIVER=mlx5_core\nPCI_CLASS=20000\nPCI_SLOT_NAME=%s" % dev.bus,
        )
        self.put(base + "/hca_type", "MT4129")
        self.put(base + "/fw_ver", "28.43.2026")
        for key, value in (
            ("current_link_speed", "32.0 GT/s PCIe"),
            ("max_link_speed", "32.0 GT/s PCIe"),
            ("current_link_width", "16"),
            ("max_link_width", "16"),
        ):
            self.put(base + "/device/" + key, value)
        if pf:
            self.put(
                base + "/device/physfn/uevent",
                "DRIVER=mlx5_core\nPCI_SLOT_NAME=%s" % self.nics[pf].bus,
            )
        for p in range(1, ports + 1):
            port = "%s/ports/%d" % (base, p)
            self.put(port + "/state", "4: ACTIVE" if active else "1: DOWN")
            self.put(port + "/rate", rate)
            self.put(port + "/link_layer", layer)
            roce = layer == "Ethernet"
            kinds = ["IB/RoCE v1", "RoCE v2", "IB/RoCE v1", "RoCE v2"] if roce else ["IB/RoCE v1"]
            for i, kind in enumerate(kinds):
                gid = (
                    "fe80:0000:0000:0000:0000:0000:0000:0001"
                    if i < 2
                    else "0000:0000:0000:0000:0000:ffff:c000:0201"
                )
                self.put("%s/gids/%d" % (port, i), gid)
                self.put("%s/gid_attrs/types/%d" % (port, i), kind)
        if net:
            self.put("%s/device/net/%s/mtu" % (base, net), str(mtu or 9000))

    def write(self):
        path = os.path.join(HERE, self.name)
        shutil.rmtree(path, ignore_errors=True)
        for name, text in self.files.items():
            full = os.path.join(path, name)
            os.makedirs(os.path.dirname(full), exist_ok=True)
            with open(full, "w", encoding="ascii") as f:
                f.write(text)


MODULES = (
    "nvidia 9707520 120 - Live 0x0000000000000000\nmlx5_ib 466944 0 - Live 0x0000000000000000\n"
    "mlx5_core 2232320 1 mlx5_ib - Live 0x0000000000000000\n"
    "ib_uverbs 200704 2 - Live 0x0000000000000000\n"
)


def ready(m, product, sm, links, distribution="ubuntu"):
    """The software of a machine on which everything is installed."""
    lines = ["gpu %d %s %d %s" % (i, g.bus, sm, product) for i, g in enumerate(m.gpus)]
    if links:
        n = len(m.gpus)
        lines += ["nvlink %d %d %d" % (i, j, links) for i in range(n) for j in range(i + 1, n)]
    m.put("facts/gpus", "\n".join(lines + ["driver 575.57.08"]))
    m.put(
        "proc/modules",
        MODULES + "nvidia_peermem 20480 0 - Live 0x0000000000000000\n"
        "gdrdrv 36864 0 - Live 0x0000000000000000\n",
    )
    m.put(
        "proc/driver/nvidia/params",
        'EnableMSI: 1\nEnableStreamMemOPs: 1\n' 'RegistryDwords: "PeerMappingOverride=1;"\n',
    )
    m.put(
        "proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  575.57.08  Release Build\n",
    )
    m.put("proc/sys/kernel/osrelease", "6.8.0-60-generic")
    m.put("proc/cmdline", "iommu=pt")
    m.put(
        "etc/modprobe.d/nvidia-railyard.conf",
        'options nvidia NVreg_EnableStreamMemOPs=1 NVreg_RegistryDwords="PeerMappingOverride=1;"\n',
    )
    m.put(
        "etc/os-release",
        'ID=%s\nVERSION_ID="%s"\n'
        % (distribution, "24.04" if distribution == "ubuntu" else "12"),
    )
    m.put(
        "facts/packages",
        "build-essential 12.10ubuntu1\ncmake 3.28.3\ncuda-toolkit-12-9 12.9.1-1\n"
        "doca-ofed 3.2.1\ngdrdrv-dkms 2.5-1\ngit 1:2.43.0\nlibgdrapi 2.5-1\n"
        "libnvshmem3-cuda-12 3.5.19-1\n"
        "libnvshmem3-dev-cuda-12 3.5.19-1\nninja-build 1.11.1\nopenmpi-bin 4.1.6\n"
        "libopenmpi-dev 4.1.6\n"
        "python3-dev 3.12.3\npython3-venv 3.12.3\n",
    )
    m.put("facts/limits", "memlock unlimited\nnofile 1048576\nshm 1082331758592\nuid 1000\n")
    m.put(
        "facts/devices", "".join("%s max_qp=131072 max_mr=16777216\n" % n for n in sorted(m.nics))
    )
    m.put("facts/register", "".join("%s:1 ok\n" % n for n in sorted(m.nics)))
    lib = "/usr/lib/x86_64-linux-gnu"
    m.put(
        "facts/libs",
        "libnvshmem_host.so.3 %s/nvshmem/12/libnvshmem_host.so.3 3.5.19 system\n"
        "libnvshmem_device.a %s/nvshmem/12/libnvshmem_device.a 3.5.19 system\n"
        "libnccl.so.2 %s/libnccl.so.2 2.27.7 system\n"
        "libibverbs.so.1 %s/libibverbs.so.1 1.14.51.0 system\n"
        "libmlx5.so.1 %s/libmlx5.so.1 1.25.51.0 system\nlibmlx5.so %s/libmlx5.so - system\n"
        "nvshmem_bootstrap_mpi.so.3 %s/nvshmem/12/nvshmem_bootstrap_mpi.so.3 3.5.19 system\n"
        % ((lib,) * 7),
    )
    m.put("facts/python", "3.12 cpython-312 /usr/bin/python3.12\n")
    m.put(
        "facts/extensions",
        "deep_ep /opt/venv/lib/python3.12/site-packages/deep_ep_cpp.so "
        "python=cpython-312 sm=%d ibgda=1 version=1.2.1\n" % sm,
    )
    m.put("facts/torch", "2.9.1+cu129\n")
    m.put(
        "facts/env",
        "CUDA_HOME=/usr/local/cuda\nNVSHMEM_IBGDA_NIC_HANDLER=gpu\n" "GDRCOPY_HOME=/usr\n",
    )
    m.put(
        "facts/sources",
        "deepep /opt/DeepEP owner=1000 build_owner=1000 clean=1 patch=1\n"
        "nvshmem /opt/nvshmem_src owner=1000 build_owner=1000 clean=1 gdrcopy=1\n",
    )
    m.put("facts/build", "pmix=1\n")
    m.put("facts/launcher", "none 1\n")
    m.put(
        "facts/pcie",
        "".join(
            "%s acs=0x0000 relaxed=1\n" % d.bus
            for d in list(m.gpus) + [m.nics[n] for n in sorted(m.nics)]
        ),
    )
    m.put(
        "facts/counters",
        "".join(
            "%s:1 rx_prio3_pause 120 120\n%s:1 np_ecn_marked_roce_packets 40 40\n"
            "%s:1 rp_cnp_handled 12 12\n" % (n, n, n)
            for n in sorted(m.nics)
        ),
    )
    m.put("usr/local/cuda/version.json", '{"cuda": {"name": "CUDA SDK", "version": "12.9.1"}}\n')
    m.put("sys/kernel/iommu_groups/0/type", "identity\n")


def bare(m, product, sm, links):
    """A cloud image: GPU driver and inbox NIC drivers, nothing else."""
    ready(m, product, sm, links)
    m.put("proc/modules", MODULES)
    m.put(
        "proc/driver/nvidia/params", 'EnableMSI: 1\nEnableStreamMemOPs: 0\nRegistryDwords: ""\n'
    )
    m.put(
        "proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  575.57.08  Release Build\n",
    )
    m.put(
        "facts/packages",
        "git 1:2.43.0\nrdma-core 50.0-2\nlibibverbs1 50.0-2\nibverbs-providers 50.0-2\n",
    )
    m.put(
        "facts/libs",
        "libibverbs.so.1 /usr/lib/x86_64-linux-gnu/libibverbs.so.1 1.14.50.0 system\n"
        "libmlx5.so.1 /usr/lib/x86_64-linux-gnu/libmlx5.so.1 1.24.50.0 system\n",
    )
    m.put("facts/limits", "memlock 8388608\nnofile 1024\nshm 1082331758592\nuid 1000\n")
    m.put("facts/register", "".join("%s:1 failed EFAULT\n" % n for n in sorted(m.nics)))
    m.put("facts/env", "")
    for gone in (
        "etc/modprobe.d/nvidia-railyard.conf",
        "facts/extensions",
        "facts/torch",
        "facts/sources",
        "usr/local/cuda/version.json",
    ):
        del m.files[gone]


def hgx_h100():
    m = Machine(
        "hgx-h100",
        """
An HGX H100 board with eight GPUs and eight single-port InfiniBand NICs, made by hand. Each GPU and
its NIC sit under one PCIe switch on a host bridge of their own, four a socket, so that nvidia-smi
shows PIX on the diagonal, NODE within a socket and SYS across. The shape is that of the matrices
which owners of such machines posted in the issue trackers of NCCL (#933, #1264) and DeepEP (#60);
CPU numbers are those of two 56-core processors. No text was taken from there.
""",
        2,
        56,
    )
    for i in range(8):
        m.host_bridge(i // 4, switch(gpu(), nic("mlx5_%d" % i, pci_class="0207")))
    m.topology()
    for i in range(8):
        m.rdma("mlx5_%d" % i)
    ready(m, "NVIDIA H100 80GB HBM3", 90, 18)
    head = ["GPU%d" % i for i in range(8)] + ["NIC%d" % i for i in range(8)]
    rows = []
    for i, name in enumerate(head):
        cells = []
        for j in range(16):
            if i == j:
                cells.append("X")
            elif i < 8 and j < 8:
                cells.append("NV18")
            elif i % 8 == j % 8:
                cells.append("PIX")
            else:
                cells.append("NODE" if i % 8 // 4 == j % 8 // 4 else "SYS")
        if i < 8:
            cells += ["0-55,112-167" if i < 4 else "56-111,168-223", str(i // 4), "N/A"]
        rows.append("\t".join([name] + cells))
    m.put(
        "expect/nvidia-smi-topo.txt",
        "\t".join([""] + head + ["CPU Affinity", "NUMA Affinity", "GPU NUMA ID"])
        + "\n"
        + "\n".join(rows),
    )
    m.write()


def b200(name, is_ready):
    m = Machine(
        name,
        """
A cloud machine with eight B200 GPUs and eight 400 Gb/s RoCE NICs, %s its driver stack
was installed, made by hand. Two GPUs and two NICs share a PCIe switch, so that both NICs
are equally
near to both GPUs, as described for such instances in DeepEP pull request #466 and llm-d
#397. Device
names before are those that the inbox udev rules give (rocep...), afterwards mlx5_N.
""" % ("after" if is_ready else "before"),
        2,
        56,
    )
    names = ["mlx5_%d" % i if is_ready else "rocep%ds0" % (145 + 10 * i) for i in range(8)]
    for pair in range(4):
        a, b = 2 * pair, 2 * pair + 1
        m.host_bridge(pair // 2, switch(gpu("2901"), gpu("2901"), nic(names[a]), nic(names[b])))
    m.topology()
    for i, n in enumerate(names):
        m.rdma(n, "Ethernet", net="eth%d" % (i + 2), rate="400 Gb/sec (4X NDR)")
    (ready if is_ready else bare)(m, "NVIDIA B200", 100, 18)
    m.write()


def two_port(name, near):
    m = Machine(
        name,
        """
Eight GPUs, each with a two-port NIC of its own, %s, made by hand: the two
arrangements for which NVSHMEM's release notes give dual-port figures. A port is a PCI
function with an
RDMA device of its own, as ConnectX cards show them.
""" % ("under the same PCIe switch (PIX)" if near else "behind a second PCIe switch (PXB)"),
        2,
        48,
    )
    for i in range(8):
        ports = nic("mlx5_%d" % (2 * i), "mlx5_%d" % (2 * i + 1))
        below = ports if near else switch(ports)
        m.host_bridge(i // 4, switch(gpu("2335"), below))
    m.topology()
    for i in range(16):
        m.rdma("mlx5_%d" % i, "Ethernet", net="eth%d" % i, rate="200 Gb/sec (2X NDR)")
    ready(m, "NVIDIA H200", 90, 18)
    m.write()


def four_port_pxb():
    m = Machine(
        "four-port-pxb",
        """
Eight GPUs in pairs; each pair shares, several PCIe bridges away (PXB), two two-port
NICs: four ports
for two GPUs. Made by hand after the matrix in DeepEP issue #145.
""",
        2,
        56,
    )
    for pair in range(4):
        n = 4 * pair
        m.host_bridge(
            pair // 2,
            Device(
                "bridge",
                children=[
                    switch(gpu(), gpu()),
                    switch(
                        nic("mlx5_%d" % n, "mlx5_%d" % (n + 1)),
                        nic("mlx5_%d" % (n + 2), "mlx5_%d" % (n + 3)),
                    ),
                ],
            ),
        )
    m.topology()
    for i in range(16):
        m.rdma("mlx5_%d" % i, "Ethernet", net="eth%d" % i, rate="200 Gb/sec (2X NDR)")
    ready(m, "NVIDIA H100 80GB HBM3", 90, 18)
    m.write()


def two_equal():
    m = Machine(
        "two-equal",
        """
Two GPUs and two single-port NICs below one host bridge, each on a root port of its own (PHB): both
NICs are equally near to both GPUs. Made by hand.
""",
        1,
        32,
        threads=False,
    )
    m.host_bridge(0, lone(gpu()), lone(gpu()), card("mlx5_0"), card("mlx5_1"))
    m.topology()
    for i in range(2):
        m.rdma("mlx5_%d" % i)
    ready(m, "NVIDIA H100 PCIe", 90, 0)
    m.write()


def bond():
    m = Machine(
        "bond",
        """
Two GPUs and one two-port RoCE NIC whose ports are joined to a bond, which shows as one RDMA device
mlx5_bond_0, and a second such NIC. Made by hand; names and files are those of the mlx5
driver and of
Linux bonding.
""",
        2,
        32,
    )
    for i in range(2):
        m.host_bridge(i, switch(gpu(), nic("mlx5_bond_%d" % i)))
    m.topology()
    for i in range(2):
        n = "mlx5_bond_%d" % i
        m.rdma(n, "Ethernet", net="bond%d" % i, rate="400 Gb/sec (4X NDR)")
        m.put("sys/class/net/bond%d/bonding/mode" % i, "802.3ad 4")
        m.put("sys/class/net/bond%d/bonding/slaves" % i, "eth%d eth%d" % (2 * i, 2 * i + 1))
        m.put("sys/class/net/bond%d/bonding/xmit_hash_policy" % i, "layer3+4 1")
        for j in (2 * i, 2 * i + 1):
            m.put("sys/class/net/eth%d/compat/devlink/lag_port_select_mode" % j, "queue_affinity")
    ready(m, "NVIDIA H100 80GB HBM3", 90, 18)
    m.write()


def virtual_functions():
    m = Machine(
        "virtual-functions",
        """
Two GPUs, two single-port NICs with two virtual functions each, all of them visible to
the host. Made by
hand; links and files are those that SR-IOV has in sysfs.
""",
        1,
        48,
    )
    for i in range(2):
        m.host_bridge(
            0,
            switch(
                gpu(), nic("mlx5_%d" % (3 * i), "mlx5_%d" % (3 * i + 1), "mlx5_%d" % (3 * i + 2))
            ),
        )
    m.topology()
    for i in range(6):
        pf = None if i % 3 == 0 else "mlx5_%d" % (i - i % 3)
        m.rdma("mlx5_%d" % i, "Ethernet", net="eth%d" % i, pf=pf)
    ready(m, "NVIDIA H100 80GB HBM3", 90, 18)
    m.write()


def laptop():
    m = Machine(
        "laptop",
        """
A laptop: one processor, no GPU, no RDMA NIC, no driver. Made by hand.
""",
        1,
        8,
        threads=False,
    )
    m.topology()
    m.put("proc/modules", "e1000e 348160 0 - Live 0x0000000000000000\n")
    m.put("proc/sys/kernel/osrelease", "6.1.0-28-amd64")
    m.put("proc/cmdline", "")
    m.put("etc/os-release", 'ID=debian\nVERSION_ID="12"\n')
    m.put("facts/limits", "memlock 8388608\nnofile 1024\nshm 8388608000\nuid 1000\n")
    m.put("facts/packages", "build-essential 12.9\ngit 1:2.39.5\n")
    m.put("facts/libs", "")
    m.put("facts/env", "")
    m.put("facts/python", "3.11 cpython-311 /usr/bin/python3.11\n")
    m.put("facts/build", "pmix=1\n")
    m.put("facts/launcher", "none 1\n")
    m.write()


hgx_h100()
b200("b200-bare", False)
b200("b200-ready", True)
two_port("two-port-pix", True)
two_port("two-port-pxb", False)
four_port_pxb()
two_equal()
bond()
virtual_functions()
laptop()
