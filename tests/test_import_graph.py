"""The import graph: few arrows, no way back, and the drawing in CONTRIBUTING.md is that of the code."""

import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scripts import import_graph

PAGE = f"before\n{import_graph.BEGIN}\nold\n{import_graph.END}\nafter\n"


def reachable(graph, node):
    found, todo = set(), [node]
    while todo:
        for other in graph[todo.pop()] - found:
            found.add(other)
            todo.append(other)
    return found


def test_contributing_shows_the_import_graph_of_the_code():
    import_graph.main(["--check"])


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """A package whose parts import each other."""

    def make(**sources):
        for name, text in sources.items():
            folder = tmp_path / "toypackage" / name
            folder.mkdir(parents=True)
            (folder.parent / "__init__.py").touch()
            (folder / "__init__.py").touch()
            (folder / "code.py").write_text(text)
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.setattr(import_graph, "PACKAGE", "toypackage")
        page = tmp_path / "page.md"
        page.write_text(PAGE)
        return page

    yield make
    for name in [name for name in sys.modules if name.split(".")[0] == "toypackage"]:
        del sys.modules[name]


LATE = "def late():\n    import toypackage.{0}.code\n"
TYPES = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import toypackage.{0}.code\n"


def test_imports_inside_functions_count_and_those_for_types_do_not(toy):
    page = toy(high=LATE.format("middle"), middle="import toypackage.low.code\n", low=TYPES.format("high"))
    with pytest.raises(SystemExit, match=r"page\.md: expected the current import graph, found an outdated one"):
        import_graph.main(["--check"], page)
    assert page.read_text() == PAGE
    import_graph.main([], page)
    import_graph.main(["--check"], page)
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("after\n") and "old" not in text
    assert "    high --> middle\n    middle --> low\n" in text and text.count("-->") == 2 + PAGE.count("-->")


def test_a_way_back_is_said(toy):
    page = toy(high="import toypackage.low.code\n", low=LATE.format("high"))
    with pytest.raises(
        SystemExit, match=r"found (high\.code -> low\.code -> high|low\.code -> high\.code -> low)\.code"
    ):
        import_graph.main([], page)
    assert page.read_text() == PAGE


def test_parts_that_import_each_other_through_different_modules_are_a_way_back():
    graph = {"p.a.one": {"p.b.one"}, "p.a.two": set(), "p.b.one": {"p.a.two"}}
    import_graph.order(graph)  # modules alone have an order
    with pytest.raises(SystemExit, match=r"no import cycle, found (a -> b -> a|b -> a -> b)"):
        import_graph.drawn(import_graph.parts(graph))


@given(st.integers(2, 9).flatmap(lambda n: st.sets(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)))))
@settings(max_examples=60)
def test_the_fewest_arrows_lead_everywhere_that_all_do(pairs):
    graph: dict[str, set[str]] = {str(node): set() for node in range(9)}
    for a, b in pairs:
        if a != b:
            graph[str(max(a, b))].add(str(min(a, b)))
    few = import_graph.reduced(graph)
    assert all(reachable(few, node) == reachable(graph, node) for node in graph)
    for node, imported in few.items():
        for other in imported:
            without = {**few, node: imported - {other}}
            assert other not in reachable(without, node)
    assert all(name in import_graph.drawn(graph) for name in graph)
