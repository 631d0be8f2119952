"""A target is a vendor and an exact architecture. Pure data; needs no hardware."""

from __future__ import annotations

from dataclasses import dataclass

from rlt_hw.errors import ConfigError


@dataclass(frozen=True, order=True)
class Target:
    """`nvidia:sm90`, `amd:gfx942`, `ascend:910b`, `cpu:x86_64`. `cpu` alone means `cpu:any`."""

    vendor: str
    arch: str

    @classmethod
    def parse(cls, text: str) -> Target:
        """Read `vendor:arch`. Whether the arch is known is a question for `facts`, not for here."""
        vendor, _, arch = text.strip().lower().partition(":")
        if vendor == "cpu":
            return cls("cpu", arch or "any")
        if vendor not in ("nvidia", "amd", "ascend", "emulated") or not arch:
            raise ConfigError(
                "target",
                found=repr(text),
                allowed="nvidia:ARCH, amd:ARCH, ascend:ARCH or cpu",
                remedy="Run `rlt-hw plan --list-targets` for every known target.",
            )
        return cls(vendor, arch)

    def __str__(self) -> str:
        return self.vendor if self.vendor == "cpu" and self.arch == "any" else f"{self.vendor}:{self.arch}"
