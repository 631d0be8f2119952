"""The platform seam, on the CPU and on stand-ins for torch's device modules."""

import sys
import types

import pytest
import torch

from rlt_hw.devices.platform import platform_for
from rlt_hw.devices.platforms.emulated import EmulatedPlatform
from rlt_hw.devices.target import Target
from rlt_hw.reasons import Code

METHODS = (
    "unavailable", "device_count", "torch_device", "set_device", "memory", "reset_peak_memory",
    "release_cached_memory", "synchronize", "stream", "current_stream", "on_stream", "event", "pin",
)  # fmt: skip


@pytest.mark.parametrize(
    ("target", "device"),
    [
        ("nvidia:sm90", "cuda:1"),
        ("amd:gfx942", "cuda:1"),
        ("ascend:910b", "npu:1"),
        ("cpu", "cpu"),
        ("emulated:privateuseone", "privateuseone:1"),
    ],
)
def test_each_target_has_a_platform_with_the_whole_seam(target, device):
    platform = platform_for(Target.parse(target))
    assert all(callable(getattr(platform, name)) for name in METHODS)
    assert isinstance(platform.pins_memory, bool) and isinstance(platform.has_streams, bool)
    if not device.startswith("npu"):
        assert str(platform.torch_device(1)) == device


def test_the_cpu_works():
    cpu = platform_for(Target.parse("cpu"))
    assert cpu.unavailable() is None
    memory = cpu.memory()
    assert 0 < memory.allocated <= memory.peak <= memory.total
    first, second = cpu.event(timing=True), cpu.event(timing=True)
    first.record()
    with cpu.on_stream(cpu.stream()):
        torch.ones(4).sum()
    second.record()
    second.synchronize()
    assert first.elapsed_time(second) >= 0
    tensor = torch.ones(3)
    assert cpu.pin(tensor) is tensor


def test_an_event_that_was_not_recorded_has_no_time():
    cpu = platform_for(Target.parse("cpu"))
    with pytest.raises(ValueError, match="recorded"):
        cpu.event().elapsed_time(cpu.event())


@pytest.mark.skipif(torch.version.cuda or torch.version.hip, reason="needs a CPU build of torch")
@pytest.mark.parametrize(
    ("target", "code"),
    [
        ("nvidia:sm90", Code.TORCH_BUILD),
        ("amd:gfx942", Code.TORCH_BUILD),
        ("ascend:910b", Code.PKG_MISSING),
        ("emulated:nowhere", Code.PLUGIN),
    ],
)
def test_an_absent_platform_says_why(target, code):
    refusal = platform_for(Target.parse(target)).unavailable()
    assert refusal.code is code
    assert refusal.found


def test_a_broken_torch_npu_is_a_reason_and_not_a_crash(monkeypatch, tmp_path):
    (tmp_path / "torch_npu.py").write_text("raise ImportError('libhccl.so: cannot open shared object file')")
    monkeypatch.syspath_prepend(str(tmp_path))
    refusal = platform_for(Target.parse("ascend:910b")).unavailable()
    sys.modules.pop("torch_npu", None)
    assert (refusal.code, refusal.found) == (Code.PKG_BROKEN, "libhccl.so: cannot open shared object file")


def test_torch_npu_is_imported_before_torch_is_asked_for_its_device(monkeypatch):
    platform = platform_for(Target.parse("ascend:910b"))
    asked = []
    monkeypatch.setattr(platform, "module", lambda: asked.append(1))
    monkeypatch.setattr(torch, "device", lambda *name: (*name, list(asked)))
    assert platform.torch_device(1) == ("npu", 1, [1])


@pytest.mark.parametrize(
    ("text", "code", "remedy"),
    [
        ("No module named 'torch_npu'", Code.PKG_MISSING, "pip install"),
        ("libhccl.so: cannot open shared object file: No such file or directory", Code.PKG_BROKEN, "set_env"),
        ("libascend_hal.so: cannot open shared object file", Code.DRIVER, "mount /usr/local/Ascend/driver"),
        ("libtorch_npu.so: undefined symbol: _ZN2at10TensorBase3fooEv", Code.PKG_VERSION, "pip install"),
        ("Failed to load the backend extension: torch_npu. You can disable", Code.PKG_BROKEN, "AUTOLOAD=0"),
        ("Initialize:torch_npu/csrc/core/npu/sys_ctrl/npu_sys_ctrl.cpp:1", Code.PKG_BROKEN, "doctor"),
    ],
)
def test_each_way_in_which_torch_npu_fails_to_import(monkeypatch, tmp_path, text, code, remedy):
    (tmp_path / "torch_npu.py").write_text(f"raise ImportError({text!r})")
    monkeypatch.syspath_prepend(str(tmp_path))
    refusal = platform_for(Target.parse("ascend:910b")).unavailable()
    sys.modules.pop("torch_npu", None)
    assert (refusal.code, refusal.found) == (code, text)
    assert remedy in refusal.remedy


def test_the_emulated_platform_asks_the_module_of_its_name(monkeypatch):
    module = types.SimpleNamespace(
        is_available=lambda: True,
        device_count=lambda: 2,
        memory_allocated=lambda index: 10 + index,
        max_memory_allocated=lambda index: 20 + index,
    )
    monkeypatch.setattr(torch, "standin", module, raising=False)
    platform = EmulatedPlatform("standin")
    assert platform.unavailable() is None
    assert platform.device_count() == 2
    assert (platform.memory(1).allocated, platform.memory(1).peak) == (11, 21)
    module.is_available = lambda: False
    assert platform.unavailable().code is Code.VISIBILITY
