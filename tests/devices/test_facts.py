import pytest

from rlt_hw.devices.facts import TargetFacts, facts, find_target, known_targets
from rlt_hw.devices.target import Target
from rlt_hw.errors import ConfigError
from rlt_hw.reasons import Code, Rejection

EVERY = [
    *(f"nvidia:sm{arch}" for arch in (80, 86, 87, 89, 90, 100, 103, 110, 120, 121)),
    *(f"amd:gfx{arch}" for arch in ("90a", "942", "950", "1100", "1101", "1151", "1200", "1201")),
    *(f"ascend:{arch}" for arch in ("910b", "910_93", "310p", "950")),
    "cpu",
]


def test_known_targets_are_exactly_the_documented_ones():
    assert [str(target) for target in known_targets()] == EVERY


@pytest.mark.parametrize("text", EVERY)
def test_every_target_has_sourced_facts_that_serialise(text):
    row = facts(Target.parse(text))
    assert isinstance(row, TargetFacts)
    assert row.source and row.products
    assert row.to_json()["target"] == text
    if row.bandwidth:
        assert row.bandwidth.source and row.bandwidth.product and row.bandwidth.gb_per_s > 100


@pytest.mark.parametrize(
    ("text", "wave", "shared", "fp8", "device"),
    [
        ("nvidia:sm80", 32, 166_912, None, "cuda"),
        ("nvidia:sm86", 32, 101_376, None, "cuda"),
        ("nvidia:sm89", 32, 101_376, "e4m3fn", "cuda"),
        ("nvidia:sm90", 32, 232_448, "e4m3fn", "cuda"),
        ("nvidia:sm100", 32, 232_448, "e4m3fn", "cuda"),
        ("nvidia:sm120", 32, 101_376, "e4m3fn", "cuda"),
        ("amd:gfx90a", 64, 65_536, None, "cuda"),
        ("amd:gfx942", 64, 65_536, "e4m3fnuz", "cuda"),
        ("amd:gfx950", 64, 163_840, "e4m3fn", "cuda"),
        ("amd:gfx1100", 32, 65_536, None, "cuda"),
        ("amd:gfx1201", 32, 65_536, "e4m3fn", "cuda"),
        ("ascend:910b", None, None, None, "npu"),
        ("cpu", None, None, None, "cpu"),
    ],
)
def test_facts_that_kernels_depend_on(text, wave, shared, fp8, device):
    row = facts(Target.parse(text))
    assert (row.wave_size, row.shared_memory, row.fp8, row.torch_device) == (wave, shared, fp8, device)


@pytest.mark.parametrize(
    "text",
    ["nvidia:sm75", "nvidia:sm70", "nvidia:sm130", "nvidia:sm101", "amd:gfx1250", "amd:gfx908", "amd:gfx1030",
     "amd:gfx940", "ascend:910a", "ascend:310", "cpu:vax"],
)  # fmt: skip
def test_an_unknown_architecture_is_refused_and_never_the_closest(text):
    refusal = facts(Target.parse(text))
    assert isinstance(refusal, Rejection)
    assert refusal.code is Code.ARCH_UNKNOWN
    assert refusal.subject == text
    assert refusal.allowed


def test_a_refusal_says_what_the_architecture_is():
    assert "Turing" in facts(Target.parse("nvidia:sm75")).found
    assert "nvidia:sm80" in facts(Target.parse("nvidia:sm75")).allowed


def test_each_cpu_arch_keeps_its_name():
    assert facts(Target("cpu", "aarch64")).target == Target("cpu", "aarch64")


def test_310p_has_no_bfloat16_and_no_graph():
    row = facts(Target.parse("ascend:310p"))
    assert (row.bfloat16, row.graph) == (False, "none")


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("H200", "nvidia:sm90"),
        ("NVIDIA GeForce RTX 5090", "nvidia:sm120"),
        ("rtx-4090", "nvidia:sm89"),
        ("mi300x", "amd:gfx942"),
        ("Radeon RX 7900 XTX", "amd:gfx1100"),
        ("910c", "ascend:910_93"),
        ("sm_90", "nvidia:sm90"),
        ("GFX942", "amd:gfx942"),
        ("Ascend 910_93", "ascend:910_93"),
        ("sm75", "nvidia:sm75"),
        ("gfx1300", "amd:gfx1300"),
        ("nvidia:sm90", "nvidia:sm90"),
        ("cpu", "cpu"),
    ],
)
def test_names_of_products_and_architectures_find_their_target(text, target):
    assert str(find_target(text)) == target


@pytest.mark.parametrize("target", [target for target in known_targets() if target.vendor != "cpu"], ids=str)
def test_an_architecture_alone_finds_its_target(target):
    assert find_target(target.arch) == target


def test_a_name_that_is_nothing_is_a_config_error():
    with pytest.raises(ConfigError, match="warp9"):
        find_target("warp9")


def test_aliases_are_unique():
    aliases = [alias for target in known_targets() for alias in facts(target).aliases]
    assert len(aliases) == len(set(aliases))
