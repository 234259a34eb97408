"""Draws which part of the package imports which, as the Mermaid diagram in CONTRIBUTING.md.

An arrow is an import at run time, including those inside functions; imports for type checkers do not count. Arrows
implied by longer paths are omitted. Cyclic imports of modules or parts are an error.

    python scripts/import_graph.py            # draws it in CONTRIBUTING.md
    python scripts/import_graph.py --check    # fails if the diagram there is out of date
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

PACKAGE = "closedform"
PAGE = Path(__file__).parents[1] / "CONTRIBUTING.md"
BEGIN, END = "<!-- import graph: make import-graph -->", "<!-- end of import graph -->"

Graph = Mapping[str, set[str]]  # what each node imports


def modules() -> dict[str, set[str]]:
    """The modules of the package, each with those that it imports."""
    import grimp  # comes with import-linter

    graph = grimp.build_graph(PACKAGE, exclude_type_checking_imports=True, cache_dir=None)
    return {module: set(graph.find_modules_directly_imported_by(module)) for module in graph.modules}


def parts(graph: Graph) -> dict[str, set[str]]:
    """The same for subpackages as a whole and top-level modules; the package's own names are `closedform`."""
    found: dict[str, set[str]] = {}
    for module, imported in graph.items():
        found.setdefault(_part(module), set()).update(map(_part, imported))
    found.pop("__main__", None)
    return {part: imported - {part} for part, imported in found.items()}


def _part(module: str) -> str:
    return module.split(".")[1] if "." in module else PACKAGE


def order(graph: Graph) -> list[str]:
    """The nodes, each after all that it imports; exits with an error if there is a cycle."""
    try:
        return list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        cycle = [str(node).removeprefix(f"{PACKAGE}.") for node in error.args[1]]
        sys.exit(f"expected no import cycle, found {' -> '.join(reversed(cycle))}")


def reduced(graph: Graph) -> dict[str, set[str]]:
    """The fewest arrows that lead from each node to the same others (the transitive reduction)."""
    below: dict[str, set[str]] = {}
    for node in order(graph):
        below[node] = set().union(graph[node], *(below[other] for other in graph[node]))
    return {
        node: {other for other in imported if not any(other in below[third] for third in imported)}
        for node, imported in graph.items()
    }


def drawn(graph: Graph) -> str:
    """The diagram in Mermaid's language."""
    arrows = reduced(graph)
    lines = [f"    {node} --> {other}" for node in sorted(arrows) for other in sorted(arrows[node])]
    alone = sorted(set(graph) - {name for line in lines for name in line.split()})
    return "\n".join(["```mermaid", "flowchart TD", *lines, *(f"    {node}" for node in alone), "```"])


def with_diagram(page: str, diagram: str) -> str:
    """A page with the diagram between its two markers."""
    if page.count(BEGIN) != 1 or page.count(END) != 1 or page.index(BEGIN) > page.index(END):
        sys.exit(f"expected a page with {BEGIN} and then {END}, found one without")
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}\n{diagram}\n{END}{rest.split(END)[1]}"


def main(arguments: list[str] | None = None, page: Path = PAGE) -> None:
    """Draws or checks the diagram."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="fail if the diagram in CONTRIBUTING.md is out of date")
    check = parser.parse_args(arguments).check
    graph = modules()
    order(graph)
    old = page.read_text(encoding="utf-8")
    new = with_diagram(old, drawn(parts(graph)))
    if not check:
        page.write_text(new, encoding="utf-8")
    elif new != old:
        sys.exit(f"{page.name}: expected the current import graph, found an outdated one; run make import-graph")


if __name__ == "__main__":
    main()
