"""What is installed and visible on a machine, as one immutable value.

An environment is an argument of every selection, so that each rule can be tested for
hardware that is not here. Detection builds one (`rlt_hw.devices.detect`), a recorded one is
read from JSON. Nothing in this module looks at the machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from rlt_hw.devices.redaction import Redaction
from rlt_hw.devices.target import Target
from rlt_hw.errors import ConfigError
from rlt_hw.reasons import Rejection

SCHEMA_VERSION = 1
NOBODY = Redaction()


@dataclass(frozen=True)
class Package:
    """An installed distribution. `error` is the text of a failed import, None while unknown."""

    name: str
    version: str
    error: str | None = None


@dataclass(frozen=True)
class TorchBuild:
    """What the installed torch was built for: `cuda` and `hip` are runtime versions or None."""

    version: str
    cuda: str | None = None
    hip: str | None = None

    @property
    def built_for(self) -> str:
        """ "CUDA 13.0", "ROCm 6.4" or "the CPU only"."""
        if self.cuda:
            return f"CUDA {self.cuda}"
        return f"ROCm {self.hip}" if self.hip else "the CPU only"


@dataclass(frozen=True)
class Device:
    """A target that is here. Memory in bytes; None where the vendor's tools did not say.

    index: the index torch uses in this process, after the visibility variables.
    features: instruction-set extensions of a CPU ("avx2", "amx_bf16"), partitioning of a GPU ("mig").
    """

    target: Target
    index: int
    name: str
    memory_total: int | None = None
    memory_free: int | None = None
    driver: str | None = None
    runtime: str | None = None
    emulated: bool = False
    features: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "target": str(self.target), "features": list(self.features)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Device:
        fields = dict(data)
        return cls(**{**fields, "target": Target.parse(data["target"]), "features": tuple(data["features"])})


@dataclass(frozen=True)
class Environment:
    """A machine as selection sees it.

    packages: by canonical distribution name ("torch", "triton", "flashinfer-python").
    toolkits: compiler or toolkit versions by name ("nvcc", "hipcc", "cann", "cxx").
    drivers: driver version by vendor.
    variables: the visibility and RLT_HW_* variables that are set.
    findings: what is broken or hidden, found while looking.
    """

    system: str = "linux-x86_64"
    python: str = "3.11"
    packages: Mapping[str, Package] = field(default_factory=dict)
    torch: TorchBuild | None = None
    devices: tuple[Device, ...] = ()
    drivers: Mapping[str, str] = field(default_factory=dict)
    toolkits: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    findings: tuple[Rejection, ...] = ()

    def version(self, package: str) -> str | None:
        found = self.packages.get(package)
        return found.version if found else None

    def devices_of(self, target: Target) -> tuple[Device, ...]:
        return tuple(device for device in self.devices if device.target == target)

    def redacted(self, redact: Redaction = NOBODY) -> Environment:
        """The same environment without what names a person or a machine, in variables and in texts."""
        return replace(
            self,
            variables={name: redact.text(value) for name, value in self.variables.items()},
            packages={
                name: replace(package, error=package.error and redact.text(package.error))
                for name, package in self.packages.items()
            },
            findings=tuple(map(redact.rejection, self.findings)),
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "schema_version": SCHEMA_VERSION,
            "system": self.system,
            "python": self.python,
            "packages": {name: asdict(package) for name, package in sorted(self.packages.items())},
            "torch": asdict(self.torch) if self.torch else None,
            "devices": [device.to_json() for device in self.devices],
            "drivers": dict(self.drivers),
            "toolkits": dict(self.toolkits),
            "variables": dict(self.variables),
            "findings": [finding.to_json() for finding in self.findings],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Environment:
        """Read what `to_json` wrote. Raises ConfigError for another schema or a damaged record."""
        if data.get("schema_version") != SCHEMA_VERSION:
            raise _damaged(f"schema_version {data.get('schema_version')!r}")
        try:
            return cls(
                system=data["system"],
                python=data["python"],
                packages={name: Package(**row) for name, row in data["packages"].items()},
                torch=TorchBuild(**data["torch"]) if data["torch"] else None,
                devices=tuple(Device.from_json(row) for row in data["devices"]),
                drivers=dict(data["drivers"]),
                toolkits=dict(data["toolkits"]),
                variables=dict(data["variables"]),
                findings=tuple(Rejection.from_json(row) for row in data["findings"]),
            )
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise _damaged(f"{type(error).__name__}: {error}") from error


def _damaged(found: str) -> ConfigError:
    return ConfigError(
        "environment record",
        found=found,
        allowed=f"what `rlt-hw probe --save FILE` writes, schema_version {SCHEMA_VERSION}",
        remedy="Record it again with `rlt-hw probe --save FILE`.",
    )
