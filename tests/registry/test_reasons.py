"""Every code has a case, a page, and the page shows what the case says."""

import pytest

from rlt_hw.reasons import Code, Rejection
from tests.registry.reasons import ELSEWHERE, EXAMPLES, PAGES


def test_every_code_has_a_case_or_a_home_elsewhere():
    assert set(Code) == set(EXAMPLES) | ELSEWHERE
    assert not set(EXAMPLES) & ELSEWHERE


def test_the_pages_and_the_codes_agree():
    assert {page.stem for page in PAGES.glob("*.md")} == {code.value for code in Code} | {"README"}
    index = (PAGES / "README.md").read_text(encoding="utf-8")
    assert all(f"[{code}]({code}.md)" in index for code in Code)


@pytest.mark.parametrize("code", EXAMPLES, ids=str)
def test_the_case_gives_its_code_and_the_page_shows_its_text(code):
    """On a difference: read it, then `python -m tests.registry.reasons --write`."""
    rejection = EXAMPLES[code]()
    assert rejection.code is code
    assert rejection.remedy
    assert f"```text\n{rejection}\n```" in (PAGES / f"{code}.md").read_text(encoding="utf-8")
    assert Rejection.from_json(rejection.to_json()) == rejection
