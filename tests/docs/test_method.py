"""The equations of the method page are real ones, and each has a link to the lines of code that compute it."""

import re

import pytest

from scripts import method_links

TEXT = method_links.PAGE.read_text("utf-8")


def test_the_links_lead_to_todays_lines():
    assert method_links.updated(TEXT) == TEXT, "run python scripts/method_links.py"


def test_every_equation_is_followed_by_its_code():
    after = re.split(r"^\$\$\n.*?^\$\$\n", TEXT, flags=re.MULTILINE | re.DOTALL)[1:]
    assert len(after) >= 15
    for text in after:
        assert re.match(r"\n\(\[`[\w.]+`\]\(\.\./src/closedform/[\w/]+\.py#L\d+\)", text), text[:80]
    assert "a formula" not in TEXT


def test_a_name_that_is_gone_is_an_error(tmp_path):
    (tmp_path / "code.py").write_text("class A:\n\n    def b(self):\n        pass\n")
    assert method_links.updated("[`A.b`](code.py#L9)", tmp_path) == "[`A.b`](code.py#L3)"
    with pytest.raises(SystemExit, match=r"expected A\.c in .*code\.py, found no c"):
        method_links.updated("[`A.c`](code.py#L9)", tmp_path)
