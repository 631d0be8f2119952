import pytest

from rlt_hw.devices.detect.visibility import visible
from rlt_hw.reasons import Code

UUIDS = ["GPU-aaa1", "GPU-aab2", "GPU-ccc3"]


@pytest.mark.parametrize(
    ("value", "order", "said"),
    [
        (None, (0, 1, 2), ""),
        ("0,2", (0, 2), ""),
        ("2, 0", (2, 0), ""),
        ("GPU-c", (2,), ""),
        ("gpu-aab,0", (1, 0), ""),
        ("", (), "hides every one of 3"),
        ("-1", (), "hides every one of 3"),
        ("NoDevFiles", (), "hides every one of 3"),
        ("0,7,1", (0,), "'7' names no device"),
        ("1,-1,2", (1,), "'-1' names no device"),
        ("0,one", (0,), "'one' names no device"),
        ("GPU-aa", (), "'GPU-aa' names no device"),
        ("1,1", (1,), "names a device twice"),
        ("0,,1", (0,), "'' names no device"),
    ],
)
def test_the_list_is_read_as_the_vendors_runtime_reads_it(value, order, said):
    shown = visible("CUDA_VISIBLE_DEVICES", value, UUIDS)
    assert shown.order == order
    assert bool(shown.findings) == bool(said)
    for finding in shown.findings:
        assert finding.code is Code.VISIBILITY
        assert said in finding.found
        assert finding.remedy.startswith(("`unset", "`export"))


@pytest.mark.parametrize(
    ("value", "order", "said"),
    [("0,1", (0, 1), ""), ("2,1", (2,), "out of order"), ("0, 1", (0,), "names no device")],
)
def test_cann_wants_rising_order_and_no_spaces(value, order, said):
    shown = visible("ASCEND_RT_VISIBLE_DEVICES", value, ["", "", ""], ascending=True)
    assert shown.order == order
    assert said in "".join(finding.found for finding in shown.findings)


def test_hiding_nothing_is_no_finding():
    assert visible("CUDA_VISIBLE_DEVICES", "", []).findings == ()
