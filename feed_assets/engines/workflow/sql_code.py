"""Read the SQL file of a workflow without Spark: its statements, their syntax, and the names of its inputs.

The reader is sqlglot, which knows Spark's SQL well but is not Spark: what it refuses is uncertain.
"""

import logging
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from feed_assets.command_lines import command_line
from feed_assets.engines.errors import CodeFault
from feed_assets.engines.workflow.arguments import parameter_name
from feed_assets.engines.workflow.sql_script import MARK_OUTPUTS, Statement, find_marker_faults, parse_statements
from feed_assets.errors import find_similar

if TYPE_CHECKING:
    from sqlglot.expressions import Expr

_ASK_SPARK = f"`{command_line('validate', live=True)}` asks Spark itself."
_KEYWORDS = frozenset(
    (
        *("SELECT", "FROM", "WHERE", "GROUP", "ORDER", "HAVING", "UNION", "VALUES", "CREATE", "INSERT", "WITH"),
        *("LIMIT", "INNER", "LEFT", "RIGHT", "OUTER", "CROSS", "JOIN", "USING", "DISTINCT", "BETWEEN", "WINDOW"),
    )
)
_WORD = re.compile(r"[A-Za-z_]+")


def find_sql_faults(
    file: Path, inputs: Sequence[str], outputs: Mapping[str, str], *, has_tables: bool = True
) -> Iterator[CodeFault]:
    """Yield what is wrong with a SQL file.

    Args:
        file: the file.
        inputs: the names of the process's inputs, which are its views.
        outputs: the feeds of its outputs, by the names of the outputs.
        has_tables: whether a catalog may have tables beside the views.
    """
    try:
        statements = parse_statements(file.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as exc:
        yield CodeFault(reason=f"it cannot be read: {exc}", next_step="Save it as UTF-8.", file=file)
        return
    if not statements:
        yield CodeFault(reason="it contains no statement", next_step="Write at least one SQL statement.", file=file)
        return
    unmarked = find_marker_faults(statements, outputs) if outputs else []
    for reason in unmarked:
        yield CodeFault(reason=reason, next_step=MARK_OUTPUTS, file=file)
    taken = [each for each in statements if each.output is not None] or statements[-1:]
    views = {parameter_name(name) for name in inputs}
    for statement in statements:
        tree = _read(statement, file)
        if isinstance(tree, CodeFault):
            yield tree
            return
        if statement not in taken and not unmarked and _has_result(tree):
            reason = "the result of this statement is dropped: " + (
                "that of the last one is taken" if taken[0].output is None else "no output is marked before it"
            )
            remedy = "Make a view of it (CREATE TEMPORARY VIEW name AS …), combine both by UNION ALL, or remove it."
            yield CodeFault(reason=reason, next_step=remedy, file=file, line=statement.line)
        yield from _unknown_views(tree, statement, views, file, is_certain=not has_tables)
        views |= _created(tree)


def find_marked(file: Path) -> tuple[str, ...]:
    """Return the names that the markers of a SQL file give to its results; empty if it has none or cannot be read."""
    try:
        statements = parse_statements(file.read_text("utf-8"))
    except (OSError, UnicodeDecodeError):
        return ()
    return tuple(dict.fromkeys(each.output for each in statements if each.output is not None))


def suggest_view(name: str, views: Collection[str]) -> str | None:
    """Return the view that was probably meant.

    >>> suggest_view("Flihgts", ["flights", "weather"])
    'flights'
    """
    return next(iter(find_similar(name.lower(), sorted(views), n=1, cutoff=0.7)), None)


def _read(statement: Statement, file: Path) -> "Expr | CodeFault":
    # Measured: importing the reader takes a third of a second, and only SQL files need it.
    from sqlglot import parse_one
    from sqlglot.errors import ParseError, TokenError

    logging.getLogger("sqlglot").setLevel(logging.ERROR)  # it warns of each command that it passes over
    try:
        return parse_one(statement.text, dialect="spark")
    except TokenError:
        line, next_step = statement.line, "Close it."
        reason = "the statement has a string, a quoted name or a comment that is not closed"
    except ParseError as exc:
        line, reason, next_step = _explain(exc.errors[0], statement)
    return CodeFault(reason=reason, next_step=f"{next_step} {_ASK_SPARK}", file=file, line=line, is_certain=False)


def _explain(error: Mapping[str, Any], statement: Statement) -> tuple[int, str, str]:
    """Return the line, the reason and the next step of a syntax error."""
    line = statement.begins + int(error["line"]) - 1
    reason = f"the statement cannot be read as SQL at {error['highlight']!r}"
    lacking = str(error["description"]).removeprefix("Expecting ")
    if len(lacking) == 1:
        return line, f"{reason}: a {lacking!r} is missing before it", f"Write the {lacking!r}."
    for word in reversed(_WORD.findall(f"{error['start_context']}{error['highlight']}")):
        close = find_similar(word.upper(), _KEYWORDS, n=1, cutoff=0.74)
        if close and word.upper() not in _KEYWORDS:
            after = "" if word == error["highlight"] else f", after {word!r}"
            return line, f"{reason}{after}", f"Did you mean {close[0]}?"
    return line, reason, "Correct the statement."


def _has_result(tree: "Expr") -> bool:
    from sqlglot import exp

    return isinstance(tree, exp.Query)


def find_columns(condition: str) -> list[str]:
    """Return the columns that a condition on a row names, without the fields in them; none if it cannot be read.

    >>> find_columns("temp > -40 AND exists(stops, s -> s.code = wind)")
    ['temp', 'stops', 'wind']
    """
    from sqlglot import exp

    tree = _parse(condition)
    found = () if tree is None else tree.find_all(exp.Column, bfs=False)
    return list(dict.fromkeys(each.parts[0].name for each in found))


def _parse(expression: str) -> "Expr | None":
    from sqlglot import parse_one
    from sqlglot.errors import SqlglotError

    try:
        return parse_one(expression, dialect="spark")
    except SqlglotError:
        return None


def is_about_rows(expression: str) -> bool | None:
    """Return whether an expression is about several rows, by an aggregate function; None if that cannot be known: it
    cannot be read, or has a query, or a function that somebody may have made.

    >>> is_about_rows("max(temp) > 0"), is_about_rows("abs(temp) > 0"), is_about_rows("my_mean(temp) > 0")
    (True, False, None)
    """
    from sqlglot import exp

    tree = _parse(expression)
    if tree is None or tree.find(exp.Query):
        return None
    return True if tree.find(exp.AggFunc, exp.Any) else (None if tree.find(exp.Anonymous) else False)


def find_query(statement: str) -> tuple[int, int, list[str]] | None:
    """Return where an INSERT begins and where its query does, and the words between; None for other statements."""
    from sqlglot.dialects.spark import Spark
    from sqlglot.errors import SqlglotError
    from sqlglot.tokenizer_core import TokenType

    try:
        tokens = Spark().tokenize(statement)
    except SqlglotError:
        return None
    depth = 0
    for number, token in enumerate(tokens if tokens and tokens[0].token_type is TokenType.INSERT else ()):
        depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
        if depth == 0 and token.token_type in (TokenType.SELECT, TokenType.WITH, TokenType.FROM, TokenType.VALUES):
            return tokens[0].start, token.start, [each.text for each in tokens[:number]]
    return None


def _unknown_views(
    tree: "Expr", statement: Statement, views: Collection[str], file: Path, *, is_certain: bool
) -> Iterator[CodeFault]:
    """Yield each table that is written almost as a view is; others may be tables of a catalog."""
    from sqlglot import exp

    known = {name.lower() for name in views} | {cte.alias.lower() for cte in tree.find_all(exp.CTE)} | _created(tree)
    for table in tree.find_all(exp.Table):
        if table.db or not isinstance(table.this, exp.Identifier) or table.name.lower() in known:
            continue
        close = suggest_view(table.name, known)
        if close is not None:
            yield CodeFault(
                reason=f"there is no view {table.name!r}; the inputs are {', '.join(sorted(views))}",
                next_step=f"Did you mean {close!r}?",
                file=file,
                line=statement.begins + int(table.this.meta.get("line", 1)) - 1,
                is_certain=is_certain,
            )


def _created(tree: "Expr") -> set[str]:
    """Return the names that a statement makes."""
    from sqlglot import exp

    made = tree.this if isinstance(tree, exp.Create | exp.Cache) else None
    return {made.name.lower()} if isinstance(made, exp.Table) else set()
