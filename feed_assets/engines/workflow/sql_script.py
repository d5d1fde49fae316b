"""Split the text of a Spark SQL file into statements, and find the output that each statement makes."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

# Text in which a semicolon does not end a statement: 'it''s', "a\"b", `a``b`, -- to the end of the line.
_TOKEN = re.compile(
    r"""
      (?P<raw>      \b[rR](?:'[^']*'|"[^"]*") )
    | (?P<quoted>   '(?:\\.|[^'\\])*' | "(?:\\.|[^"\\])*" | `[^`]*` )
    | (?P<comment>  --(?:\\\n|[^\n])* )
    | (?P<block>    /\* )
    | (?P<end>      ; )
    """,
    re.VERBOSE | re.DOTALL,
)
_BLOCK_EDGE = re.compile(r"/\*|\*/")
MARK_OUTPUTS = "Put one comment '-- output: name' before the statement of each output, and none elsewhere."
_OUTPUT_MARKER = re.compile(r"--\s*output\s*:\s*(?P<name>\S+)\s*", re.IGNORECASE)  # -- output: delays


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """A statement with its comments, the lines (counted from 1) of its first code and of its first comment or code, and
    the output named by its marker.
    """

    text: str
    line: int
    begins: int
    output: str | None


def parse_statements(text: str) -> tuple[Statement, ...]:
    """Return the statements of a SQL text, in order; text with only comments is not a statement.

    A statement ends at a `;` outside of strings, quoted names and comments (bracketed ones nest, as in Spark). A
    comment `-- output: name` on its own line, inside or before a statement, names the output that the statement makes.
    Compound statements (`BEGIN … END`) are not supported.

    >>> [(s.line, s.text, s.output) for s in parse_statements("SELECT ';' ;\\n-- output: b\\nSELECT 2")]
    [(1, "SELECT ';'", None), (3, '-- output: b\\nSELECT 2', 'b')]
    """
    return tuple(_iter_statements(text))


def find_marker_faults(statements: Sequence[Statement], outputs: Mapping[str, str]) -> list[str]:
    """Return why the markers do not give each output one statement; `outputs` are the feeds by the names of outputs.

    One output without any marker is made by the last statement.
    """
    marked = [statement for statement in statements if statement.output is not None]
    if not marked and len(outputs) == 1:
        return []
    unknown = [f"line {s.line}: there is no output {s.output!r}" for s in marked if s.output not in outputs]
    count = {name: sum(s.output == name for s in marked) for name in outputs}
    return unknown + [
        f"output {name!r} (feed {feed!r}) is made by {count[name] or 'no'} statement{'s' * (count[name] > 1)}"
        for name, feed in outputs.items()
        if count[name] != 1
    ]


def _iter_statements(text: str) -> Iterator[Statement]:
    begin, code, output = 0, "", None
    for kind, start, end in _iter_tokens(text):
        match kind:
            case "end":
                if code.strip():
                    yield _build_statement(text, begin, start, output)
                begin, code, output = end, "", None
            case "comment":
                marker = _OUTPUT_MARKER.fullmatch(text[start:end])
                output = marker["name"] if marker else output
            case "block":
                pass
            case _:
                code += text[start:end]
    if code.strip():
        yield _build_statement(text, begin, len(text), output)


def _build_statement(text: str, begin: int, end: int, output: str | None) -> Statement:
    code_begin = next(
        position
        for kind, start, stop in _iter_tokens(text, begin)
        if kind in ("code", "quoted", "raw")
        for position in range(start, stop)
        if not text[position].isspace()
    )
    first = begin + len(text[begin:end]) - len(text[begin:end].lstrip())
    return Statement(
        text=text[begin:end].strip(),
        line=text.count("\n", 0, code_begin) + 1,
        begins=text.count("\n", 0, first) + 1,
        output=output,
    )


def _iter_tokens(text: str, position: int = 0) -> Iterator[tuple[str, int, int]]:
    """Yield (kind, start, end) over the whole text, without a gap; ordinary text has the kind `code`."""
    while position < len(text):
        found = _TOKEN.search(text, position)
        start = found.start() if found else len(text)
        if start > position:
            yield "code", position, start
        if found is None:
            return
        kind = found.lastgroup or "code"
        position = _end_of_block(text, found.end()) if kind == "block" else found.end()
        yield kind, start, position


def _end_of_block(text: str, position: int) -> int:
    depth = 1
    for edge in _BLOCK_EDGE.finditer(text, position):
        depth += 1 if edge.group() == "/*" else -1
        if depth == 0:
            return edge.end()
    return len(text)
