"""Every pitfall of a machine, one row each: what is changed, the code it gives, and what is said."""

import pytest

from rlt_hw.devices.choice import choose_device
from rlt_hw.devices.detect import Ran, detect
from rlt_hw.reasons import Code
from tests.devices.machines import (
    ASCEND,
    CANN,
    CPU_ONLY,
    H200,
    LAPTOP,
    MI300X,
    SITE,
    kfd,
    npu_table,
    package,
    smi,
    torch_files,
)

HANGS = Ran("timeout", error="no answer within 5 s")
OLD_DRIVER = {"nvidia-smi --query-gpu": smi(("NVIDIA H200", "9.0", 143771, 143156, "550.54.15"))}
UNLIKE = {
    "nvidia-smi --query-gpu": smi(
        ("NVIDIA H200", "9.0", 143771, 143156, "580.1"), ("NVIDIA L4", "8.9", 23034, 22000, "580.1")
    )
}
WRONG_AITER = {f"{SITE}/aiter/__init__.py": "", **package("aiter-0.13.20191203")}
REAL_AITER = {
    f"{SITE}/aiter/__init__.py": "",
    f"{SITE}/aiter/ops/mha.py": "",
    **package("amd_aiter-0.1.7"),
}
TURING = {"nvidia-smi --query-gpu": smi(("Tesla T4", "7.5", 15360, 15000, "580.1"))}
NO_HCCL = (f"{CANN}/lib64/libhccl.so",)

CASES = {
    "driver older than the CUDA of torch": (H200.having(commands=OLD_DRIVER), Code.DRIVER, "CUDA 13.0"),
    "nvidia-smi cannot reach the driver": (
        H200.having(commands={"nvidia-smi --query-gpu": Ran("failed", "NVIDIA-SMI has failed\n")}),
        Code.DRIVER,
        "NVIDIA-SMI has failed",
    ),
    "nvidia-smi prints what nobody reads": (
        H200.having(commands={"nvidia-smi --query-gpu": Ran("ok", "Field is not valid\n")}),
        Code.DRIVER,
        "Field is not valid",
    ),
    "driver without nvidia-smi": (
        CPU_ONLY.having(files={"/proc/driver/nvidia/version": "x"}),
        Code.DRIVER,
        "not on the PATH",
    ),
    "nvidia-smi hangs": (
        H200.having(commands={"nvidia-smi --query-gpu": HANGS}),
        Code.PROBE_TIMEOUT,
        "no answer",
    ),
    "nvcc hangs": (H200.having(commands={"nvcc --version": HANGS}), Code.PROBE_TIMEOUT, "no answer"),
    "npu-smi hangs": (ASCEND.having(commands={"npu-smi info": HANGS}), Code.PROBE_TIMEOUT, "no answer"),
    "npu-smi fails": (
        ASCEND.having(commands={"npu-smi info": Ran("failed", error="dcmi module initialize failed")}),
        Code.DRIVER,
        "dcmi module initialize failed",
    ),
    "npu-smi missing": (
        CPU_ONLY.having(files={"/dev/davinci0": ""}),
        Code.DRIVER,
        "1 /dev/davinci node(s), but npu-smi is not on the PATH",
    ),
    "CPU build beside an NVIDIA GPU": (
        H200.having(files=torch_files("2.13.0+cpu")),
        Code.TORCH_BUILD,
        "built for the CPU only",
    ),
    "CPU build beside AMD GPUs": (
        MI300X.having(files=torch_files("2.13.0+cpu")),
        Code.TORCH_BUILD,
        "built for the CPU only",
    ),
    "CUDA build beside AMD GPUs": (
        MI300X.having(files=torch_files("2.13.0+cu130", cuda="13.0")),
        Code.TORCH_BUILD,
        "built for CUDA 13.0",
    ),
    "ROCm build beside an NVIDIA GPU": (
        H200.having(files=torch_files("2.9.0+rocm6.4", hip="6.4")),
        Code.TORCH_BUILD,
        "built for ROCm 6.4",
    ),
    "ROCm build without a device": (
        CPU_ONLY.having(files=torch_files("2.9.0+rocm6.4", hip="6.4")),
        Code.DRIVER,
        "no AMD GPU",
    ),
    "torch too old": (CPU_ONLY.having(files=torch_files("2.6.0+cpu")), Code.PKG_VERSION, "torch 2.6.0"),
    "no torch beside a GPU": (
        H200.having(without=tuple(torch_files("2.11.0+cu130"))),
        Code.PKG_MISSING,
        "not installed",
    ),
    "every device hidden": (
        H200.having(variables={"CUDA_VISIBLE_DEVICES": ""}),
        Code.VISIBILITY,
        "hides every one of 1",
    ),
    "malformed list": (
        H200.having(variables={"CUDA_VISIBLE_DEVICES": "0;1"}),
        Code.VISIBILITY,
        "'0;1' names no device",
    ),
    "HIP and CUDA lists differ": (
        MI300X.having(variables={"HIP_VISIBLE_DEVICES": "0", "CUDA_VISIBLE_DEVICES": "1"}),
        Code.VISIBILITY,
        "differ",
    ),
    "every NPU hidden": (
        ASCEND.having(variables={"ASCEND_RT_VISIBLE_DEVICES": "8"}),
        Code.VISIBILITY,
        "'8' names no device",
    ),
    "posing as another gfx": (
        MI300X.having(variables={"HSA_OVERRIDE_GFX_VERSION": "11.0.0"}),
        Code.ARCH,
        "11.0.0",
    ),
    "/dev/kfd closed": (MI300X.having(closed=frozenset({"/dev/kfd"})), Code.DRIVER, "may not open"),
    "/dev/kfd absent": (MI300X.having(without=("/dev/kfd",)), Code.DRIVER, "no /dev/kfd"),
    "unlike GPUs": (
        H200.having(commands=UNLIKE, variables={"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}),
        Code.MIXED_DEVICES,
        "NVIDIA H200 (nvidia:sm90); NVIDIA L4 (nvidia:sm89)",
    ),
    "unlike GPUs in unknown order": (H200.having(commands=UNLIKE), Code.MIXED_DEVICES, "numbered by speed"),
    "Turing": (H200.having(commands=TURING), Code.ARCH_UNKNOWN, "Turing"),
    "gfx1250": (MI300X.having(files=kfd(120500, 8, "x")), Code.ARCH_UNKNOWN, "gfx1250"),
    "gfx908": (MI300X.having(files=kfd(90008, 8, "x")), Code.ARCH_UNKNOWN, "gfx908"),
    "first-generation 910": (
        ASCEND.having(commands={"npu-smi info": npu_table((0, 0, "910ProB", 1, 32768))}),
        Code.ARCH_UNKNOWN,
        "ProB",
    ),
    "the other aiter": (MI300X.having(files=WRONG_AITER), Code.PKG_BROKEN, "asyncio"),
    "flash-attn without aiter": (
        MI300X.having(files=package("flash_attn-2.8.3")),
        Code.PKG_BROKEN,
        "calls AMD's `aiter`",
    ),
    "torch-npu without CANN": (ASCEND.having(without=NO_HCCL), Code.PKG_BROKEN, "libhccl.so"),
    "torch-npu, CANN not sourced": (
        ASCEND.having(variables={"LD_LIBRARY_PATH": "", "ASCEND_HOME_PATH": ""}),
        Code.PKG_BROKEN,
        "libhccl.so",
    ),
    "torch-npu breaks torch on a CPU machine": (
        CPU_ONLY.having(files=package("torch_npu-2.13.0")),
        Code.PKG_BROKEN,
        "`import torch` fails",
    ),
    "no torch-npu": (
        ASCEND.having(without=tuple(package("torch_npu-2.9.0.post1"))),
        Code.PKG_MISSING,
        "not installed",
    ),
    "torch-npu of another torch": (
        ASCEND.having(files=torch_files("2.11.0+cpu"), without=tuple(package("torch-2.9.0+cpu"))),
        Code.PKG_VERSION,
        "torch-npu 2.9.0.post1 beside torch 2.11.0",
    ),
    "unknown variable": (
        CPU_ONLY.having(variables={"RLT_HW_LOGLEVEL": "x"}),
        Code.ENV_UNKNOWN,
        "RLT_HW_LOGLEVEL is set",
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_pitfall_is_one_finding_with_a_remedy(case):
    machine, code, said = case
    findings = detect(machine).findings
    matching = [finding for finding in findings if finding.code is code and said in finding.found]
    assert len(matching) == 1, [str(finding) for finding in findings]
    assert matching[0].remedy
    assert matching[0].allowed


def test_every_case_raises_nothing_else_of_its_code_twice():
    for machine, _, _ in CASES.values():
        findings = detect(machine).findings
        assert len(findings) == len(set(findings))


@pytest.mark.parametrize(
    ("machine", "package_name", "error"),
    [
        (MI300X.having(files=WRONG_AITER), "aiter", "asyncio"),
        (MI300X.having(files={**WRONG_AITER, **package("amd_aiter-0.1.7")}), "amd-aiter", "asyncio"),
        (MI300X.having(files=REAL_AITER), "amd-aiter", None),
        (MI300X.having(files={**REAL_AITER, **package("flash_attn-2.8.3")}), "flash-attn", None),
        (H200.having(files=package("flash_attn-2.8.3")), "flash-attn", None),
        (CPU_ONLY.having(files=WRONG_AITER), "aiter", "asyncio"),
        (ASCEND.having(without=NO_HCCL), "torch-npu", "libhccl.so"),
        (ASCEND.having(without=NO_HCCL), "torch", "backend extension: torch_npu"),
        (
            ASCEND.having(without=NO_HCCL, variables={"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}),
            "torch",
            None,
        ),
    ],
)
def test_a_package_that_cannot_work_carries_its_error(machine, package_name, error):
    found = detect(machine).packages[package_name].error
    assert (found is None) if error is None else (error in found)


def test_a_source_build_of_aiter_counts_as_amds_package():
    files = {f"{SITE}/aiter/__init__.py": "", f"{SITE}/aiter/jit/core.py": "", **package("aiter-0.1.9")}
    assert detect(MI300X.having(files=files)).version("amd-aiter") == "0.1.9"


def test_the_asyncio_aiter_is_no_business_of_a_machine_without_rocm():
    assert detect(CPU_ONLY.having(files=WRONG_AITER)).findings == ()


def test_the_remedy_of_a_missing_library_depends_on_what_is_there():
    def remedy(machine):
        return next(f.remedy for f in detect(machine).findings if f.subject == "torch-npu")

    assert "set_env.sh" in remedy(ASCEND.having(variables={"LD_LIBRARY_PATH": "", "ASCEND_HOME_PATH": ""}))
    assert "Install the CANN toolkit" in remedy(ASCEND.having(without=NO_HCCL))
    assert remedy(CPU_ONLY.having(files=package("torch_npu-2.13.0"))) == "`pip uninstall -y torch-npu`"


def test_the_unknown_variable_names_its_nearest_neighbour():
    (finding,) = detect(CPU_ONLY.having(variables={"RLT_HW_LOGLEVEL": "x"})).findings
    assert "RLT_HW_LOG_LEVEL" in finding.remedy
    assert detect(CPU_ONLY.having(variables={"RLT_HW_LOG_LEVEL": "x"})).findings == ()


def test_an_older_driver_is_enough_for_an_older_torch():
    machine = H200.having(
        commands=OLD_DRIVER,
        files=torch_files("2.8.0+cu128", cuda="12.8"),
        without=tuple(package("torch-2.11.0+cu130")),
    )
    assert detect(machine).findings == ()


@pytest.mark.parametrize(
    ("machine", "wanted", "target", "passed_over"),
    [
        (H200, "auto", "nvidia:sm90", []),
        (H200, "cpu", "cpu:x86_64", []),
        (H200, "cuda", "nvidia:sm90", []),
        (MI300X, "cuda:3", "amd:gfx942", []),
        (ASCEND, "npu:7", "ascend:910b", []),
        (H200.having(files=torch_files("2.13.0+cpu")), "auto", "cpu:x86_64", [Code.TORCH_BUILD]),
        (H200.having(commands=TURING), "auto", "cpu:x86_64", [Code.ARCH_UNKNOWN]),
        (LAPTOP, "auto", None, [Code.PKG_MISSING]),
    ],
)
def test_the_choice_of_a_device_keeps_what_it_passed_over(machine, wanted, target, passed_over):
    choice = choose_device(wanted, detect(machine))
    assert (choice.device and str(choice.device.target)) == target
    assert [row.reasons[0].code for row in choice.passed_over] == passed_over
    assert choice.to_json()["wanted"] == wanted


def test_a_named_device_that_is_not_here_lists_those_that_are():
    from rlt_hw.errors import ConfigError, UnsupportedError

    with pytest.raises(ConfigError, match="cuda:0"):
        choose_device("npu", detect(H200))
    with pytest.raises(UnsupportedError, match="PKG_MISSING"):
        choose_device("auto", detect(LAPTOP)).require()
