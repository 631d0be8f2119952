"""The rules about a machine's software: packages with their versions, and compilers."""

from __future__ import annotations

from collections.abc import Iterator

from rlt_hw.devices.environment import Environment, Package
from rlt_hw.devices.facts import TargetFacts, facts
from rlt_hw.devices.versions import older, release
from rlt_hw.reasons import Code, Rejection
from rlt_hw.registry.case import Case, rejection
from rlt_hw.registry.spec import Requirement


def packages(case: Case) -> Iterator[Rejection]:
    for requirement in case.spec.requirements:
        package = installed(requirement, case.environment)
        allowed, install = str(requirement), f"`pip install '{requirement}'`"
        if package is None:
            yield rejection(
                Code.PKG_MISSING, case.spec, f"{requirement.distribution} not installed", allowed, install
            )
            continue
        found = f"{package.name} {package.version}"
        if package.error:
            reinstall = f"`pip install --force-reinstall '{requirement}'`"
            yield rejection(
                Code.PKG_BROKEN, case.spec, f"{found}: {package.error}", "a package that imports", reinstall
            )
        if not _satisfies(package.version, requirement.specifier):
            yield rejection(Code.PKG_VERSION, case.spec, found, allowed, install)


def toolkits(case: Case) -> Iterator[Rejection]:
    for toolkit in case.spec.toolkits:
        known = facts(case.target)
        minimum = toolkit.minimum
        if toolkit.name == "nvcc" and isinstance(known, TargetFacts) and known.min_nvcc:
            minimum = max(minimum, known.min_nvcc, key=release)
        allowed = f"{toolkit.name} >= {minimum} for {case.target.arch}" if minimum else toolkit.name
        version = case.environment.toolkits.get(toolkit.name)
        remedy = f"Install {allowed} and put it on the PATH."
        if version is None:
            yield rejection(Code.TOOLCHAIN, case.spec, f"no {toolkit.name}", allowed, remedy)
        elif minimum and older(version, minimum):
            yield rejection(Code.TOOLCHAIN, case.spec, f"{toolkit.name} {version}", allowed, remedy)


def installed(requirement: Requirement, environment: Environment) -> Package | None:
    """The installed distribution that brings a requirement's module."""
    names = (requirement.distribution, *requirement.also)
    return next((environment.packages[name] for name in names if name in environment.packages), None)


def _satisfies(version: str, specifier: str) -> bool:
    from packaging.specifiers import SpecifierSet
    from packaging.version import InvalidVersion

    try:
        return SpecifierSet(specifier).contains(version, prereleases=True)
    except InvalidVersion:
        return False
