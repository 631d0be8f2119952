"""Whole machines: what detection makes of them."""

import pytest

from rlt_hw.devices.detect import Ran, detect
from rlt_hw.devices.detect.amd import gfx_name
from rlt_hw.devices.detect.ascend import soc_arch
from rlt_hw.reasons import Code
from tests.devices.machines import ASCEND, CPU_ONLY, H200, LAPTOP, MI300X, RTX5090, npu_table, smi

GIB = 1024**3


def targets(environment):
    return [str(device.target) for device in environment.devices]


def codes(environment):
    return [finding.code for finding in environment.findings]


def test_an_h200_machine_is_read_completely_and_has_no_finding():
    environment = detect(H200)
    gpu, cpu = environment.devices
    assert (str(gpu.target), gpu.name, gpu.index, gpu.driver) == (
        "nvidia:sm90", "NVIDIA H200", 0, "580.159.04",
    )  # fmt: skip
    assert gpu.memory_total == 143771 * 1024**2
    assert gpu.memory_free == 143156 * 1024**2
    assert str(cpu.target) == "cpu:x86_64"
    assert cpu.features == ("avx2", "f16c", "avx512f", "avx512_bf16", "amx_tile", "amx_bf16")
    assert cpu.memory_total == 131961788 * 1024
    assert environment.toolkits == {"nvcc": "13.0", "cxx": "15"}
    assert environment.drivers == {"nvidia": "580.159.04"}
    assert (environment.torch.version, environment.torch.cuda, environment.torch.hip) == (
        "2.11.0+cu130", "13.0", None,
    )  # fmt: skip
    assert environment.version("triton") == "3.6.0"
    assert environment.version("nvidia-nccl-cu13") == "2.28.9"
    assert environment.findings == ()


def test_eight_mi300x_are_read_from_the_kernel_alone():
    environment = detect(MI300X)
    assert targets(environment) == ["amd:gfx942"] * 8 + ["cpu:x86_64"]
    assert [device.index for device in environment.devices[:8]] == list(range(8))
    assert environment.devices[0].name == "AMD Instinct MI300X OAM"
    assert environment.devices[0].memory_free == 206141652992 - 294912000
    assert environment.drivers == {"amd": "6.12.12"}
    assert environment.toolkits["rocm"] == environment.toolkits["hipcc"] == "6.4.1"
    assert environment.findings == ()


def test_a_910b_machine():
    environment = detect(ASCEND)
    assert targets(environment) == ["ascend:910b"] * 8 + ["cpu:aarch64"]
    assert environment.devices[7].name == "Ascend 910B3"
    assert environment.devices[0].memory_total == 64 * GIB
    assert environment.devices[0].memory_free == (65536 - 3353) * 1024**2
    assert (environment.drivers["ascend"], environment.toolkits["cann"]) == ("24.1.rc2", "8.3.RC1")
    assert environment.findings == ()


def test_a_910_93_chip_is_told_from_the_board_because_the_table_says_ascend910():
    table = npu_table((0, 0, "Ascend910", 3416, 65536), (0, 1, "Ascend910", 3195, 65536))
    board = Ran("ok", "\tChip Name : Ascend910\n\tNPU Name : 9391\n")
    machine = ASCEND.having(
        commands={"npu-smi info": table, "npu-smi info -t board -i 0 -c 0": board},
        files={"/dev/davinci_manager": ""},
    )
    environment = detect(machine)
    assert targets(environment)[:2] == ["ascend:910_93"] * 2
    assert environment.devices[1].index == 1


def test_a_laptop_without_torch_has_one_finding():
    environment = detect(LAPTOP)
    assert targets(environment) == ["cpu:x86_64"]
    assert environment.torch is None
    assert [(finding.code, finding.subject) for finding in environment.findings] == [
        (Code.PKG_MISSING, "torch")
    ]


def test_a_cpu_machine_with_torch_has_none():
    assert detect(CPU_ONLY).findings == ()


def test_an_rtx_5090_with_an_old_torch_names_the_build_and_the_toolkit_stays_a_fact():
    environment = detect(RTX5090)
    assert targets(environment)[0] == "nvidia:sm120"
    assert environment.toolkits["nvcc"] == "12.4"
    (finding,) = environment.findings
    assert finding.code is Code.TORCH_BUILD
    assert "without kernels for sm120" in finding.found
    assert "cu128" in finding.remedy


@pytest.mark.parametrize(
    ("variables", "indices", "names"),
    [
        ({"CUDA_VISIBLE_DEVICES": "1"}, [0], ["B"]),
        ({"CUDA_VISIBLE_DEVICES": "1,0"}, [0, 1], ["B", "A"]),
        ({"CUDA_VISIBLE_DEVICES": "GPU-00000001"}, [0], ["B"]),
        ({"CUDA_VISIBLE_DEVICES": ""}, [], []),
    ],
)
def test_a_visible_subset_is_renumbered_as_torch_does(variables, indices, names):
    two = smi(("A", "9.0", 80000, 80000, "580.1"), ("B", "9.0", 80000, 80000, "580.1"))
    environment = detect(H200.having(commands={"nvidia-smi --query-gpu": two}, variables=variables))
    gpus = [device for device in environment.devices if device.target.vendor == "nvidia"]
    assert [device.index for device in gpus] == indices
    assert [device.name for device in gpus] == names


def test_rocr_hides_below_hip():
    environment = detect(
        MI300X.having(variables={"ROCR_VISIBLE_DEVICES": "4,5,6", "HIP_VISIBLE_DEVICES": "2,0"})
    )
    assert len(environment.devices) == 3
    assert environment.findings == ()
    too_far = detect(MI300X.having(variables={"ROCR_VISIBLE_DEVICES": "4", "HIP_VISIBLE_DEVICES": "4"}))
    assert codes(too_far) == [Code.VISIBILITY]


def test_a_mig_slice_is_its_gpu_without_a_memory_figure():
    machine = H200.having(
        variables={"CUDA_VISIBLE_DEVICES": "MIG-11111111-2222"},
        commands={
            "nvidia-smi --query-gpu": smi(
                ("NVIDIA H200", "9.0", 143771, 143156, "580.159.04"), mig="Enabled"
            ),
            "nvidia-smi -L": Ran(
                "ok",
                "GPU 0: NVIDIA H200 (UUID: GPU-00000000-aaaa)\n"
                "  MIG 1g.18gb Device 0: (UUID: MIG-11111111-2222)\n",
            ),
        },
    )
    gpu = detect(machine).devices[0]
    assert (gpu.features, gpu.memory_total) == (("mig",), None)


def test_a_jetson_is_known_by_its_device_tree():
    files = {
        "/proc/device-tree/compatible": "nvidia,p3737-0000+p3701-0005\0nvidia,tegra234\0",
        "/proc/device-tree/model": "NVIDIA Jetson AGX Orin Developer Kit\0",
    }
    device = detect(LAPTOP.having(files=files)).devices[0]
    assert (str(device.target), device.name) == ("nvidia:sm87", "NVIDIA Jetson AGX Orin Developer Kit")


@pytest.mark.parametrize(
    ("version", "name"),
    [(90010, "gfx90a"), (90402, "gfx942"), (90500, "gfx950"), (110000, "gfx1100"), (110501, "gfx1151"),
     (120001, "gfx1201"), (120500, "gfx1250"), (90008, "gfx908"), (100300, "gfx1030")],
)  # fmt: skip
def test_kernel_versions_become_llvm_names(version, name):
    assert gfx_name(version) == name


@pytest.mark.parametrize(
    ("name", "arch"),
    [("910B3", "910b"), ("Ascend910B4-1", "910b"), ("910B2C", "910b"), ("Ascend910_9391", "910_93"),
     ("310P3", "310p"), ("Ascend950PR_9589", "950"), ("910B", "910"), ("910ProB", "910prob"),
     ("Ascend910", "910"), ("310", "310")],
)  # fmt: skip
def test_soc_names(name, arch):
    assert soc_arch(name) == arch


def test_the_record_of_every_machine_survives_json():
    import json

    from rlt_hw.devices.environment import Environment

    for machine in (H200, MI300X, ASCEND, RTX5090, LAPTOP, CPU_ONLY):
        environment = detect(machine)
        assert Environment.from_json(json.loads(json.dumps(environment.to_json()))) == environment
