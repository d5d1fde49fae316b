"""The tree of operators that the text of a plan of Spark shows by indentation."""

import re
from dataclasses import dataclass, field

OPTIMIZED = "\n\n== Optimized Logical Plan =="
"""What follows the analyzed plan in an explanation."""
_LINE = re.compile(r"((?::  |   )*)(?::- |\+- )(.*)", re.DOTALL)  # :  +- Project [a#1]
_MADE = re.compile(r" AS [^#]*(\S)#(\d+)L?(?=, |\]|$)")  # the end of (a#1 + 1) AS b#2


@dataclass(slots=True, kw_only=True)
class Node:
    """The text of an operator, and the operators below it."""

    text: str
    children: "list[Node]" = field(default_factory=list)
    subqueries: "list[Node]" = field(default_factory=list)

    made: "set[tuple[str, str]] | None" = None

    def find_made(self) -> set[tuple[str, str]]:
        """Return the last letters and the ids of the columns that the operators below make."""
        if self.made is None:
            below = (*self.children, *self.subqueries)
            self.made = set().union(*(each.find_made().union(_MADE.findall(each.text)) for each in below))
        return self.made


def parse_tree(text: str) -> Node:
    """Read operators by their indentation: children stand one step deeper, subqueries two."""
    lines = text.split(OPTIMIZED, 1)[0].rstrip("\n").split("\n")
    top = Node(text=lines[0])
    path = [(0, top)]
    for line in lines[1:]:
        found = _LINE.fullmatch(line)
        depth = 0 if found is None else len(found[1]) // 3 + 1
        if found is None or depth > path[-1][0] + 2:
            path[-1][1].text += f"\n{line}"  # of a name or literal
            continue
        while path[-1][0] >= depth:
            path.pop()
        above, parent = path[-1]
        node = Node(text=found[2])
        (parent.children if depth == above + 1 else parent.subqueries).append(node)
        path.append((depth, node))
    return top
