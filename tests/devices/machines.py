"""Recorded machines: what their tools print and their files say, cut down to what detection reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from rlt_hw.devices.detect import Ran

SITE = "/env/lib/python3.11/site-packages"
CPUINFO = (
    "model name\t: Intel(R) Xeon(R) Processor\n"
    "flags\t\t: fpu sse2 avx2 f16c avx512f avx512_bf16 amx_tile amx_bf16\n"
)
MEMINFO = "MemTotal:       131961788 kB\nMemFree:        130681824 kB\nMemAvailable:   131468644 kB\n"
NVCC_13 = "nvcc: NVIDIA (R) Cuda compiler driver\nCuda compilation tools, release 13.0, V13.0.88\n"
NVCC_124 = "nvcc: NVIDIA (R) Cuda compiler driver\nCuda compilation tools, release 12.4, V12.4.131\n"


@dataclass(frozen=True)
class RecordedMachine:
    """A machine that answers from tables. `commands` by how their line starts; the longest start wins."""

    commands: Mapping[str, Ran] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    closed: frozenset[str] = frozenset()
    system: str = "linux-x86_64"
    python: str = "3.11.7"
    search_path: tuple[str, ...] = (SITE,)

    def run(self, *command: str, timeout: float) -> Ran:
        line = " ".join(command)
        starts = sorted((start for start in self.commands if line.startswith(start)), key=len)
        return self.commands[starts[-1]] if starts else Ran("missing", error=f"{command[0]}: not found")

    def read(self, path: str) -> str | None:
        return self.files.get(path)

    def list(self, path: str) -> tuple[str, ...]:
        prefix = path.rstrip("/") + "/"
        return tuple(
            sorted({name[len(prefix) :].split("/")[0] for name in self.files if name.startswith(prefix)})
        )

    def exists(self, path: str) -> bool:
        return path in self.files or bool(self.list(path))

    def writable(self, path: str) -> bool:
        return self.exists(path) and path not in self.closed

    def having(self, *, variables=None, commands=None, files=None, without=(), **fields) -> RecordedMachine:
        """The same machine with more variables, commands and files, and without some files."""
        kept = {path: text for path, text in {**self.files, **(files or {})}.items() if path not in without}
        return replace(
            self,
            variables={**self.variables, **(variables or {})},
            commands={**self.commands, **(commands or {})},
            files=kept,
            **fields,
        )


def torch_files(version: str, cuda: str | None = None, hip: str | None = None) -> dict[str, str]:
    text = (
        "from typing import Optional\n"
        f"__version__ = '{version}'\ndebug = False\n"
        f"cuda: Optional[str] = {cuda!r}\nhip: Optional[str] = {hip!r}\n"
    )
    return {f"{SITE}/torch/version.py": text, **package(f"torch-{version}")}


def package(*stems: str) -> dict[str, str]:
    return {f"{SITE}/{stem}.dist-info/METADATA": "" for stem in stems}


def host(*extra: Mapping[str, str]) -> dict[str, str]:
    files = {"/proc/cpuinfo": CPUINFO, "/proc/meminfo": MEMINFO}
    for more in extra:
        files.update(more)
    return files


def smi(*rows: tuple[str, str, int, int, str], mig: str = "Disabled") -> Ran:
    lines = [
        f"GPU-{at:08d}-aaaa, {name}, {capability}, {total}, {free}, {driver}, {mig}"
        for at, (name, capability, total, free, driver) in enumerate(rows)
    ]
    return Ran("ok", "\n".join(lines) + "\n")


def kfd(version: int, count: int, product: str) -> dict[str, str]:
    nodes = "/sys/class/kfd/kfd/topology/nodes"
    files = {f"{nodes}/0/properties": "cpu_cores_count 96\ngfx_target_version 0\n", "/dev/kfd": ""}
    for at in range(count):
        render = f"/sys/class/drm/renderD{128 + at}/device"
        files |= {
            f"{nodes}/{at + 1}/properties": f"simd_count 1216\ngfx_target_version {version}\n"
            f"drm_render_minor {128 + at}\nunique_id {0xABC0 + at}\n",
            f"{render}/mem_info_vram_total": "206141652992\n",
            f"{render}/mem_info_vram_used": "294912000\n",
            f"{render}/product_name": f"{product}\n",
        }
    files["/sys/module/amdgpu/version"] = "6.12.12\n"
    files["/opt/rocm/.info/version"] = "6.4.1\n"
    files["/opt/rocm/bin/hipcc"] = ""
    return files


def npu_table(*chips: tuple[int, int, str, int, int], version: str = "24.1.rc2") -> Ran:
    """Chips as (npu, chip, name, used MB, total MB)."""
    bar = "+" + "=" * 27 + "+" + "=" * 15 + "+" + "=" * 52 + "+"
    lines = [
        bar,
        f"| npu-smi {version}                 Version: {version}                             |",
        bar,
        "| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|",
        "| Chip                      | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |",
    ]
    for npu, chip, name, used, total in chips:
        lines += [
            bar,
            f"| {npu}     {name:<20}| OK            | 94.9        38                0    / 0             |",
            f"| {chip}     {npu:<20}| 0000:C{npu}:00.0  | 0           0    / 0          {used} / {total} |",
        ]
    lines += [bar, "| NPU     Chip              | Process id    | Process name | Process memory(MB) |", bar]
    return Ran("ok", "\n".join(lines) + "\n")


H200 = RecordedMachine(
    commands={
        "nvidia-smi --query-gpu": smi(("NVIDIA H200", "9.0", 143771, 143156, "580.159.04")),
        "nvcc --version": Ran("ok", NVCC_13),
        "c++ -dumpversion": Ran("ok", "15\n"),
    },
    files=host(
        {"/proc/driver/nvidia/version": "NVRM version"},
        torch_files("2.11.0+cu130", cuda="13.0"),
        package("triton-3.6.0", "nvidia_nccl_cu13-2.28.9"),
    ),
)
MI300X = RecordedMachine(
    files=host(
        kfd(90402, 8, "AMD Instinct MI300X OAM"), torch_files("2.9.0+rocm6.4", hip="6.4.43484-123eb5128")
    )
)
CANN = "/usr/local/Ascend/ascend-toolkit/latest"
ASCEND = RecordedMachine(
    commands={"npu-smi info": npu_table(*((at, 0, "910B3", 3353, 65536) for at in range(8)))},
    files=host(
        torch_files("2.9.0+cpu"),
        package("torch_npu-2.9.0.post1"),
        {
            f"{CANN}/lib64/libhccl.so": "",
            f"{CANN}/aarch64-linux/ascend_toolkit_install.info": "version=8.3.RC1\n",
        },
        {f"/dev/davinci{at}": "" for at in range(8)},
    ),
    variables={"ASCEND_HOME_PATH": CANN, "LD_LIBRARY_PATH": f"{CANN}/lib64"},
    system="linux-aarch64",
)
RTX5090 = RecordedMachine(
    commands={
        "nvidia-smi --query-gpu": smi(("NVIDIA GeForce RTX 5090", "12.0", 32607, 32100, "570.86.10")),
        "nvcc --version": Ran("ok", NVCC_124),
    },
    files=host(torch_files("2.8.0+cu126", cuda="12.6")),
)
LAPTOP = RecordedMachine(files=host())
CPU_ONLY = RecordedMachine(files=host(torch_files("2.13.0+cpu")))
