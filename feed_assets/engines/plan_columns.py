"""Read from the text of an analyzed plan of Spark of which columns of the inputs the columns of a frame are made.

Spark names no files in it and no frames, so inputs are marked. Columns have ids, by which edges follow expressions.
Literals stand unquoted, and names may have any character: an id counts only where the operator below yields it under
that name, and each operator is read by its own grammar. What does not fit it is refused, and the lineage is unknown.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import chain
from operator import attrgetter
from typing import Any, TypeAlias

from feed_assets.engines.plan_tree import Node, parse_tree
from feed_assets.entities.content.column_lineage import ColumnLineage, ColumnSource, SourceKind
from feed_assets.errors import shorten
from feed_assets.masking import mask

INPUT_MARK = "feed_assets_input:"
"""A filter `isnotnull(feed_assets_input:NAME)`, which Spark removes when it optimizes, stands above each input."""
FILES = "external/files"
_MARKED = re.compile(rf"Filter isnotnull\({INPUT_MARK}(.*)\)")
_ID = re.compile(r"#(\d+)L?(?![\w#])")  # of delay#12 and number#12L
_LISTED = re.compile(r"#(\d+)L?(?:, ?|$)")
_ENDS = (", ", "], [", "]", "")
_CALLED = re.compile(r"[\w(]*")  # of what stands before the first column of upper(concat(a#1, x))
_SUBQUERY = re.compile(r"(?:scalar-subquery|list|exists)#\d+ \[")
_BY_SEQUENCE = re.compile(
    r"\b(?:monotonically_increasing_id|rand\w*|uuid|spark_partition_id|shuffle|first\w*|last\w*|any_value|row_number|lag|"
    r"lead|nth_value|ntile|collect_\w+|array_agg|listagg|string_agg|max_by|min_by|mode)\(|\)#\d|"
    r"RowFrame, (?!unboundedpreceding\$\(\), unboundedfollowing)",
    re.IGNORECASE,  # SPARK_PARTITION_ID()
)
"""What depends on the order of rows where nothing orders them: such functions, those of Python, and frames of rows."""
_RELATION = re.compile(r"Relation (?P<table>\S*)\[(?P<columns>.*)\] (?P<kind>[^\[\]]+)(?:\[.*\])?", re.DOTALL)
_TABLE = re.compile(r"(?:RelationV2|DataSourceV2Relation)\[(?P<columns>.*)\] (?P<table>\S+).*", re.DOTALL)
_HIVE = re.compile(r"HiveTableRelation \[(?P<table>[^,]+), .*?Data Cols: \[(?P<columns>.*)\]\]", re.DOTALL)
_CTE = re.compile(r"CTERelationRef (\d+), true, \[(.*)\], (?:true|false), (?:true|false)(?:, \d+)?", re.DOTALL)
_VIEW = re.compile(r"View \(.*, \[(.*)\]\)", re.DOTALL)
_YIELDS = re.compile(r".*, \[(.*)\](?:, (?:true|false))?", re.DOTALL)  # MapInPandas f(a#1)#2, [b#3], false
_DIRECT = SourceKind.DIRECT
_LONGEST_TEXT = 300
_MOST_SOURCES = 20_000

Sources: TypeAlias = dict[tuple[str, str], str]
"""Columns of inputs, as (input, column), each with the text by which it has gone in."""


class PlanNotReadError(ValueError):
    """A plan has what this module does not understand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputColumns:
    """The columns of an input, if their names may be such that a plan does not tell them, and what they are `made_of`
    if it is the frame of an earlier step.
    """

    names: Sequence[str] | None = None
    made_of: ColumnLineage | None = None


def read_plan(
    text: str,
    root: str,
    names: Sequence[str],
    inputs: Mapping[str, InputColumns],
    *,
    are_values_constant: bool = False,
    tell_words: Callable[[], str] = str,
) -> ColumnLineage:
    """Read the analyzed plan, or the whole explanation, of a frame with columns `names` that has the alias `root`.

    `beyond` names tables that are no input; files that are none are `FILES`, for a plan does not tell their paths.
    Rows that stand in the plan itself are unknown unless they `are_values_constant`, as `VALUES` of a query are.
    `tell_words` returns the literals and names of the program, without ids: what may be the end of a literal is one if
    its id stands there, too.

    Raises:
        PlanNotReadError: something in the plan is not understood; the message is a clause.
    """
    start = text.rfind(f"SubqueryAlias {root}\n")
    if start < 0:
        raise PlanNotReadError("Spark has not told its plan")
    if "variablereference(" in text:
        raise PlanNotReadError("it has a variable of SQL, and no plan tells what that was set from")
    reader = _Reader(inputs, are_values_constant=are_values_constant)
    try:
        rows = reader.read(parse_tree(text[start:]), {})
    except RecursionError as exc:
        raise PlanNotReadError("its plan is too deep") from exc
    if len(rows.order) != len(names):
        raise PlanNotReadError("the columns of its plan are not those of the result")
    forged = "|".join(map(str, reader.doubtful))
    if reader.doubtful - reader.used - set(rows.order) or (forged and re.search(rf"#({forged})(?!\d)", tell_words())):
        raise PlanNotReadError("a literal in its plan cannot be told from columns")
    columns = {name: _render(rows.columns[key]) for name, key in zip(names, rows.order, strict=True)}
    if sum(map(len, columns.values())) > _MOST_SOURCES:
        raise PlanNotReadError(f"its columns have more than {_MOST_SOURCES:,} sources")
    indirect = _render(_Column(name="", indirect=rows.indirect))
    return ColumnLineage(columns=columns, indirect=indirect, beyond=tuple(sorted(reader.beyond)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Column:
    """A column: its name, or what is certainly its `end`, its sources, and its expression if it has only one."""

    name: str
    end: str = ""
    text: str | None = None
    direct: Sources = field(default_factory=dict)
    indirect: Sources = field(default_factory=dict)


_NUMBERS, _UNTOLD = _Column(name="id", text="id"), -1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    """What an operator yields: columns by id, ids in order, and what decides which rows there are.

    `sequence` decides about their order only, so about rows where some are taken. A frame of numbers, which tells no
    id of its column, `is_open`.
    """

    columns: dict[int, _Column] = field(default_factory=dict)
    order: tuple[int, ...] = ()
    indirect: Sources = field(default_factory=dict)
    sequence: Sources = field(default_factory=dict)
    is_open: bool = False

    def all(self, text: str) -> Sources:
        """Return the sources of all columns."""
        return dict.fromkeys(chain(*((*column.direct, *column.indirect) for column in self.columns.values())), text)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reference:
    start: int
    end: int
    key: int
    column: _Column


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scope:
    """The columns that the text of an operator may refer to, what its subqueries are made of, and what the order of its
    rows depends on. Columns that are referred to are `used`; those that may be the end of a literal are `doubtful`.
    """

    node: Node
    columns: Mapping[int, _Column]
    values: _Column
    sequence: Sources
    used: set[int]
    doubtful: set[int]

    def find(self, text: str) -> list[_Reference]:
        """Return the columns of a text. One that ought to be among those below, and is not, says that another text was
        misunderstood.
        """
        found = []
        for each in _ID.finditer(text):
            key, end = int(each[1]), each.start()
            column = self.columns.get(key)
            names = () if column is None else (column.name, column.end or column.name)
            name = next((name for name in names if text[max(end - len(name), 0) : end].lower() == name.lower()), None)
            if column is not None and name is not None:
                found.append(_Reference(start=end - len(name), end=each.end(), key=key, column=column))
            elif end and not text[end - 1].isspace() and (column or (text[end - 1], each[1]) in self.node.find_made()):
                raise PlanNotReadError(f"column #{key} of its plan is not among those of the operator below")
        self.used.update(each.key for each in found)
        return found

    def sources(self, text: str, label: str) -> Sources:
        """Return all that a condition or a list of keys is made of."""
        found = self.find(text)
        shown = shorten(f"{label} {_expand(text, 0, len(text), found)}".strip(), _LONGEST_TEXT)
        columns = [each.column for each in found] + [self.values] * bool(_SUBQUERY.search(text))
        sources = dict.fromkeys(chain(*((*column.direct, *column.indirect) for column in columns)), shown)
        return sources | self.sequence if _BY_SEQUENCE.search(text) else sources


class _Reader:
    """Reads operators from the leaves up."""

    def __init__(self, inputs: Mapping[str, InputColumns], *, are_values_constant: bool) -> None:
        self._inputs = inputs
        self._are_values_constant = are_values_constant
        self._ctes: dict[int, _Rows] = {}
        self.beyond: set[str] = set()
        self.used: set[int] = set()
        self.doubtful: set[int] = set()

    def read(self, node: Node, outer: Mapping[int, _Column]) -> _Rows:
        """Return what an operator yields; `outer` are the columns of the operators around its subquery."""
        if (marked := _MARKED.fullmatch(node.text)) is not None and len(node.children) == 1:
            return self._read_input(marked[1], node.children[0])
        operator = re.split(r"[ \[]", node.text, maxsplit=1)[0]
        if operator == "WithCTE":
            return self._read_ctes(node, outer)
        if node.subqueries and operator != "LateralJoin" and _SUBQUERY.search(node.text) is None:
            raise _unknown(operator)
        below = [self.read(child, outer) for child in node.children]
        told = {**outer, **{key: column for rows in below for key, column in rows.columns.items()}}
        below = [_opened(rows, node.text, told) for rows in below]
        columns = {**{key: column for rows in below for key, column in rows.columns.items()}, **told}
        inner = [self.read(each, columns) for each in node.subqueries]
        every = [each for rows in inner for each in (*rows.columns.values(), _Column(name="", indirect=rows.indirect))]
        scope = _Scope(
            node=node,
            columns=columns,
            values=_merged(_Column(name=""), every),
            sequence={key: text for rows in below for key, text in rows.sequence.items()},
            used=self.used,
            doubtful=self.doubtful,
        )
        match operator, below:
            case _, []:
                return self._read_leaf(node)
            case "LateralJoin", [left] if len(inner) == 1:
                return _join(node.text, left, inner[0], scope)
            case "Join" | "AsOfJoin", [left, right]:
                return _join(node.text, left, right, scope)
            case "Union" | "Intersect" | "Except", [_, _, *_]:
                self.used.update(chain(*(rows.order for rows in below[1:])))  # whose number is that of the first
                return _combine(operator, below)
            case "FlatMapCoGroupsInPandas" | "FlatMapCoGroupsInArrow", [one, other]:
                return _call(node.text, _both(one, other))
            case _, [rows]:
                return _read_unary(operator, node.text, rows, scope)
        raise _unknown(operator)

    def _read_input(self, name: str, child: Node) -> _Rows:
        if (known := self._inputs.get(name)) is None:
            raise PlanNotReadError(f"its plan has an input {name!r}, which was not handed in")
        relation = _RELATION.fullmatch(child.text)
        if relation is not None and not child.children:
            found = _split(relation["columns"], known.names or ())
        else:
            rows = _Reader({}, are_values_constant=True).read(child, {})
            found = [(rows.columns[key].name, key) for key in rows.order]
        told = [column for column, _ in found if column != "_metadata"]
        names = told if known.names is None else list(known.names)
        if told[: len(names)] != names:
            raise PlanNotReadError(f"the columns of input {name!r} have names that cannot be told apart in its plan")
        own = {
            column: (ColumnSource(input=name, column=column, kind=_DIRECT, text=f"{name}.{column}"),)
            for column in names
        }
        made_of = known.made_of or ColumnLineage(columns=own)
        if made_of.unknown is not None:
            raise PlanNotReadError(f"that of the frame {name!r} is unknown: {made_of.unknown}")
        self.beyond |= set(made_of.beyond)
        columns = {key: _column_of(name, column, made_of.columns.get(column, ())) for column, key in found}
        return _Rows(columns=columns, order=tuple(key for _, key in found), indirect=_sources_of(made_of.indirect))

    def _read_leaf(self, node: Node) -> _Rows:
        text = node.text
        if text.startswith("Range ("):
            return _Rows(columns={_UNTOLD: _NUMBERS}, order=(_UNTOLD,), is_open=True)
        if text == "OneRowRelation":
            return _Rows()
        if (local := re.fullmatch(r"LocalRelation (?:<empty>, )?\[(.*)\]", text, re.DOTALL)) is not None:
            if not self._are_values_constant and "<empty>" not in text[: local.start(1)]:
                raise PlanNotReadError("it has values that went through the driver, whose origin no plan tells")
            return _plain_rows(local[1])
        if (cte := _CTE.fullmatch(text)) is not None and int(cte[1]) in self._ctes:
            self.used.update(self._ctes[int(cte[1])].order)
            return _renamed(self._ctes[int(cte[1])], cte[2])
        if (table := _RELATION.fullmatch(text) or _TABLE.fullmatch(text) or _HIVE.fullmatch(text)) is not None:
            kind = table.groupdict().get("kind") or ""
            name = table["table"].replace("`", "") or (kind if "(" in kind else "")  # JDBCRelation(flights)
            self.beyond.add(mask(f"external/{name}") if name else FILES)
            return _plain_rows(table["columns"].replace("], Partition Cols: [", ", "))
        raise _unknown(re.split(r"[ \[]", text, maxsplit=1)[0])

    def _read_ctes(self, node: Node, outer: Mapping[int, _Column]) -> _Rows:
        *definitions, last = node.children
        for each in definitions:
            found = re.fullmatch(r"CTERelationDef (\d+), (?:true|false)(?:, .*)?", each.text)
            if found is None or len(each.children) != 1:
                raise _unknown("WithCTE")
            self._ctes[int(found[1])] = self.read(each.children[0], outer)
        return self.read(last, outer)


def _read_unary(operator: str, text: str, rows: _Rows, scope: _Scope) -> _Rows:
    match operator:
        case "SubqueryAlias" | "ResolvedHint" | "CollectMetrics":
            return rows
        case "Repartition" | "RebalancePartitions":  # deals rows out by all that they have
            return replace(rows, sequence=rows.all("") | rows.sequence)
        case "View" if (view := _VIEW.fullmatch(text)) is not None:
            scope.used.update(rows.order)
            return _renamed(rows, view[1])
        case "Filter":
            return replace(rows, indirect=scope.sources(text[len("Filter ") :], "where") | rows.indirect)
        case "Sort":
            keys = scope.sources(_inside(text.rpartition("]")[0] + "]", operator), "order by")
            return replace(rows, indirect=keys | rows.indirect)
        case "RepartitionByExpression":
            return replace(rows, sequence=scope.sources(text, "") | rows.sequence)
        case "GlobalLimit" | "LocalLimit" | "Offset" | "Tail" | "Sample":
            return replace(rows, indirect=rows.sequence | rows.indirect)
        case "Distinct":
            return replace(rows, indirect=rows.all("distinct") | rows.indirect)
        case "Deduplicate":
            keys = scope.sources(_inside(text, operator), "distinct")
            return replace(rows, indirect=keys | rows.sequence | rows.indirect)
        case "Project":
            return replace(rows, **_yielded(_inside(text, operator), scope))
        case "Aggregate":
            return _aggregate(_inside(text, operator), rows, scope)
        case "Window":
            return _window(_inside(text, operator), rows, scope)
        case "Generate":
            return _generate(text, rows, scope)
        case "Expand":
            return _expand_rows(text, rows, scope)
        case "MapInPandas" | "MapInArrow" | "FlatMapGroupsInPandas" | "FlatMapGroupsInArrow":
            return _call(text, rows)
    raise _unknown(operator)


def _aggregate(text: str, rows: _Rows, scope: _Scope) -> _Rows:
    plain = _blank(text, scope.find(text))
    cut = plain.find("], [")
    if plain.count("], [") > 1 or _depth(plain[: max(cut, 0)]):
        raise PlanNotReadError("the keys of an aggregate cannot be told from its values")
    keys, text = (text[:cut], text[cut + len("], [") :]) if cut >= 0 else ("", text)
    indirect = scope.sources(keys, "group by") | rows.indirect
    return _Rows(**_yielded(text, scope), indirect=indirect)


def _window(text: str, rows: _Rows, scope: _Scope) -> _Rows:
    items, end = _read_items(text, scope)
    if not text.startswith("], [", end) or " AS " in _blank(text[end:], scope.find(text[end:])):
        raise PlanNotReadError("the keys of a window cannot be told from its values")
    keys = scope.sources(text[end:].removeprefix("], ["), "over")
    order = (*rows.order, *(key for key, _ in items))
    return replace(rows, columns=rows.columns | dict(items), order=order, sequence=keys | rows.sequence)


def _generate(text: str, rows: _Rows, scope: _Scope) -> _Rows:
    found = re.fullmatch(r"Generate (.*), (?:true|false)(?:, [^\[\]]*)?, \[(.*)\]", text, re.DOTALL)
    if found is None:
        raise _unknown("Generate")
    sources = scope.sources(found[1], "")
    made = {key: _Column(name=name, direct=sources) for name, key in _split(found[2])}
    return replace(rows, columns=rows.columns | made, order=(*rows.order, *made), indirect=sources | rows.indirect)


def _expand_rows(text: str, rows: _Rows, scope: _Scope) -> _Rows:
    """Read copies of rows with other values: by their place if each has as many as there are columns, else as one."""
    lists, cut, names = text.rpartition("]], [")
    if not cut or not lists.startswith("Expand [[") or not names.endswith("]"):
        raise _unknown("Expand")
    made = _split(names[:-1])
    copies = [each.split(", ") for each in lists[len("Expand [[") :].split("], [")]
    if _SUBQUERY.search(lists):
        raise _unknown("Expand")
    if any(len(copy) != len(made) for copy in copies):
        copies = [[lists] * len(made)]
    columns = {}
    for place, (name, key) in enumerate(made):
        found = [each.column for copy in copies for each in scope.find(copy[place])]
        columns[key] = _merged(_Column(name=name), found)
    return replace(rows, columns=columns, order=tuple(key for _, key in made))


def _call(text: str, rows: _Rows) -> _Rows:
    """Read a function over whole frames: each column that it yields, and each row, may be made of all columns."""
    if (found := _YIELDS.fullmatch(text)) is None:
        raise PlanNotReadError("what a function yields cannot be read in its plan")
    shown = f"{text.split(' ', 1)[1].split('(')[0].split(', ')[-1]}(…)"
    sources = rows.all(shown)
    made = _split(found[1])
    columns = {key: _Column(name=name, text=shown, direct=sources) for name, key in made}
    indirect = sources | rows.sequence | rows.indirect
    return _Rows(columns=columns, order=tuple(key for _, key in made), indirect=indirect)


def _join(text: str, left: _Rows, right: _Rows, scope: _Scope) -> _Rows:
    kind, _, condition = text.partition(" " if text.startswith("LateralJoin") else ", ")
    rows = _both(left, right)
    shown = left if "LeftSemi" in kind or "LeftAnti" in kind else rows
    indirect = scope.sources(condition, "join on") | rows.indirect
    return replace(rows, columns=shown.columns, order=shown.order, indirect=indirect)


def _both(one: _Rows, other: _Rows) -> _Rows:
    return _Rows(
        columns=one.columns | other.columns,
        order=(*one.order, *other.order),
        indirect=one.indirect | other.indirect,
        sequence=one.sequence | other.sequence,
        is_open=one.is_open or other.is_open,
    )


def _combine(operator: str, sides: Sequence[_Rows]) -> _Rows:
    """Read a union, or an operation on sets, whose rows depend on all columns of both."""
    rows, first = reduce(_both, sides), sides[0]
    if any(len(each.order) != len(first.order) for each in sides) or len(set(first.order)) < len(first.order):
        raise PlanNotReadError("the sides of a union cannot be told apart in its plan")
    taken = sides if operator == "Union" else sides[:1]
    places = zip(*([each.columns[key] for key in each.order] for each in taken), strict=True)
    merged = {key: _merged(found[0], found) for key, found in zip(first.order, places, strict=True)}
    others = {} if operator == "Union" else rows.all(operator.lower())
    return replace(rows, columns=merged, order=first.order, indirect=others | rows.indirect, is_open=False)


def _read_items(text: str, scope: _Scope) -> tuple[list[tuple[int, _Column]], int]:
    """Read columns that are passed on, as `a#1`, or made, as `(a#1 + 1) AS b#2`, and return where they end."""
    found = scope.find(text)
    plain, at = _blank(text, found), {each.start: each for each in found}
    ends = [each for each in _ID.finditer(plain) if plain.startswith(_ENDS[:3], each.end()) or each.end() == len(plain)]
    items: list[tuple[int, _Column]] = []
    open_brackets = 0
    begin, number = 0, 0
    while begin < len(text):
        passed = at.get(begin)
        if passed is not None and (passed.end == len(text) or plain.startswith(_ENDS[:2], passed.end)):
            items.append((passed.key, passed.column))
            begin = end = passed.end
        else:
            while number < len(ends) and plain.rfind(" AS ", begin, ends[number].start()) < begin:
                number += 1
            if number == len(ends):
                break
            made, number = ends[number], number + 1
            first, after = (bisect_left(found, place, key=attrgetter("start")) for place in (begin, made.start()))
            parts = found[first:after]
            items.append((int(made[1]), _make(text, begin, made.start(), plain, parts, scope)))
            tail = plain[parts[-1].end if parts else begin : plain.index(" AS ", begin)].strip(") ")
            ahead = text[made.end() + 2 : found[after].start if after < len(found) else len(text)]
            if tail and plain.startswith(", ", made.end()) and not _CALLED.fullmatch(ahead):
                scope.doubtful.add(int(made[1]))
            depth = _depth(plain[begin : plain.index(" AS ", begin)])
            if depth < 0 < open_brackets:
                raise PlanNotReadError("a literal in its plan cannot be told from columns")
            open_brackets = max(open_brackets, depth)
            begin = end = made.end()
        if not plain.startswith(", ", end):
            break
        begin = end + 2
    return items, begin


def _make(text: str, begin: int, end: int, plain: str, parts: Sequence[_Reference], scope: _Scope) -> _Column:
    """Read `expression AS name`. A name or literal may have ` AS `, so only the end of the name is certain."""
    cut, last = plain.index(" AS ", begin, end), plain.rindex(" AS ", begin, end)
    name, certain = text[cut + len(" AS ") : end], text[last + len(" AS ") : end]
    if len(parts) == 1 and (parts[0].start, parts[0].end) == (begin, cut):
        return replace(parts[0].column, name=name, end=certain)
    keys = plain.find("windowspecdefinition(", begin, end)
    values = [each.column for each in parts if keys < 0 or each.start < keys]
    others = [each.column for each in parts if each.start > keys >= 0]
    shown = shorten(_expand(text, begin, cut, parts), _LONGEST_TEXT)
    if _SUBQUERY.search(plain, begin, end):
        values.append(scope.values)
    direct = dict.fromkeys(chain(*(each.direct for each in values)), shown)
    indirect = dict.fromkeys(chain(*(each.indirect for each in values)), shown)
    indirect |= dict.fromkeys(chain(*((*each.direct, *each.indirect) for each in others)), shown)
    if _BY_SEQUENCE.search(plain, begin, end):
        indirect |= scope.sequence
    return _Column(name=name, end=certain, text=shown, direct=direct, indirect=indirect)


def _split(text: str, names: Sequence[str] = ()) -> list[tuple[str, int]]:
    """Return names and ids of a list of columns, of which the first names may be known."""
    found, begin = [], 0
    for name in (*names, *[None] * (len(text) + 1)):
        if begin == len(text):
            break
        part = _LISTED.search(text, begin + len(name or ""))
        if part is None or name not in (None, text[begin : part.start()]):
            raise PlanNotReadError("a list of columns cannot be read in its plan")
        found.append((text[begin : part.start()], int(part[1])))
        begin = part.end()
    return found


def _blank(text: str, found: Iterable[_Reference]) -> str:
    """Return a text of the same length without the names and ids that are understood."""
    parts, begin = [], 0
    for each in found:
        parts += [text[begin : each.start], "\0" * (each.end - max(each.start, begin))]
        begin = each.end
    return "".join([*parts, text[begin:]])


def _expand(text: str, begin: int, end: int, found: Iterable[_Reference]) -> str:
    """Return an expression over the inputs, as far as it stays short, without ids, which differ from run to run."""
    for is_deep in (True, False):
        parts, at = [], begin
        for each in found:
            parts += [_ID.sub("", text[at : each.start]), (each.column.text if is_deep else None) or each.column.name]
            at = each.end
        shown = "".join([*parts, _ID.sub("", text[at:end])])
        if len(shown) <= _LONGEST_TEXT:
            break
    return shown


def _depth(text: str, brackets: str = "()") -> int:
    return text.count(brackets[0]) - text.count(brackets[1])


def _inside(text: str, operator: str) -> str:
    """Return the lists of an operator, without the first and the last bracket."""
    if text == operator:
        return ""
    if not text.startswith(f"{operator} [") or not text.endswith("]"):
        raise _unknown(operator)
    return text[len(operator) + 2 : -1]


def _opened(rows: _Rows, text: str, told: Mapping[int, _Column]) -> _Rows:
    """Return the rows of numbers with the columns `id` that the operator above names and no other rows have."""
    found = {int(each[1]) for each in re.finditer(r"\bid#(\d+)L", text)} - told.keys() if rows.is_open else ()
    return replace(rows, columns=dict.fromkeys(found, _NUMBERS) | rows.columns)


def _yielded(text: str, scope: _Scope) -> dict[str, Any]:
    items, end = _read_items(text, scope)
    if end != len(text):
        raise PlanNotReadError("a list of columns cannot be read in its plan")
    return {"columns": dict(items), "order": tuple(key for key, _ in items), "is_open": False}


def _plain_rows(columns: str) -> _Rows:
    found = _split(columns)
    made = {key: _Column(name=name, text=name) for name, key in found}
    return _Rows(columns=made, order=tuple(key for _, key in found))


def _renamed(rows: _Rows, columns: str) -> _Rows:
    """Return rows with the ids that a view or a reference gives them."""
    keys = [key for _, key in _split(columns)]
    if len(keys) != len(rows.order):
        raise PlanNotReadError("the columns of a view cannot be told apart in its plan")
    renamed = {key: rows.columns[former] for key, former in zip(keys, rows.order, strict=True)}
    return replace(rows, columns=renamed, order=tuple(keys))


def _merged(named: _Column, found: Sequence[_Column]) -> _Column:
    texts = {each.text for each in found}
    direct: Sources = {}
    indirect: Sources = {}
    for each in found:
        direct = each.direct | direct
        indirect = each.indirect | indirect
    return replace(named, text=texts.pop() if len(texts) == 1 else None, direct=direct, indirect=indirect)


def _column_of(name: str, column: str, sources: Sequence[ColumnSource]) -> _Column:
    """Return a column of an input, or of a frame, which has the sources of the frame."""
    direct = _sources_of(each for each in sources if each.kind is _DIRECT)
    indirect = _sources_of(each for each in sources if each.kind is not _DIRECT)
    texts = set(direct.values())
    text = texts.pop() if len(texts) == 1 else f"{name}.{column}"
    return _Column(name=column, text=text, direct=direct, indirect=indirect)


def _sources_of(sources: Iterable[ColumnSource]) -> Sources:
    return {(each.input, each.column): each.text for each in sources}


def _render(column: _Column) -> tuple[ColumnSource, ...]:
    return tuple(
        ColumnSource(input=name, column=of, kind=kind, text=text)
        for kind, sources in ((_DIRECT, column.direct), (SourceKind.INDIRECT, column.indirect))
        for (name, of), text in sorted(sources.items())
    )


def _unknown(operator: str) -> PlanNotReadError:
    if operator == "LogicalRDD":
        return PlanNotReadError("rows come from an RDD, a checkpoint or values of Python, which have no plan")
    return PlanNotReadError(mask(f"what the operator {operator!r} of its plan does is not known"))
