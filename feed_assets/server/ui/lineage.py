"""Pages of lineage: pictures of graphs, each with a table of the same below. Their whole state is in the address."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from markupsafe import Markup

from feed_assets.entities.common import Kind
from feed_assets.errors import Fault, FeedAssetsError, WrongUsageError
from feed_assets.lineage.records import LineageGraph, Node, NodeKind
from feed_assets.lineage.windows import Access, Touching, WindowLineage
from feed_assets.server.answers import describe_error, status_of
from feed_assets.server.ui.addresses import address_of, entity_address, instance_address, question_address
from feed_assets.server.ui.catalog import words_of
from feed_assets.server.ui.records import Asked, View
from feed_assets.server.ui.tables import Cell, Table
from feed_assets.timing.dates import render_datetime

_SHOWN_FIRST = timedelta(days=7)
_MOST_RUNS = 100
_GROUPS = (NodeKind.PIPELINE, NodeKind.GROUP, NodeKind.TAG, NodeKind.OWNER, NodeKind.COLO)
_FindAddress = Callable[[Sequence[Node]], str]


def show_lineage(asked: Asked) -> View:
    """Show what an instance came of and what came of it; without one, who has touched what in a window of time."""
    kind, name, instance = asked.one("kind"), asked.one("name"), asked.one("instance")
    given = _read_controls(asked, "as_of", "proof") if instance else _read_controls(asked, "start", "end")
    if not instance:
        given["start"] = given["start"] or render_datetime(asked.now - _SHOWN_FIRST)
    title = f"{name} {instance}".strip()
    asks = {"kind": kind, "names": [name, *filter(None, [instance])], **_to_ask(given)}
    return _show(asked, f"Lineage of {title}", "lineage show", asks, {**given, "instance": instance})


def show_group(asked: Asked) -> View:
    """Show what hangs on a pipeline, a group, a tag, an owner, a cluster or a colo."""
    kind, name = asked.one("kind"), asked.one("name")
    return _show(asked, f"Lineage of {kind} {name}", "lineage group", {"kind": kind, "name": name}, {})


def show_columns(asked: Asked) -> View:
    """Show the columns of a feed, or what is said of one; and what they came of and what came of them."""
    feed, column = asked.one("name"), asked.one("column")
    given = _read_controls(asked, "as_of", "instance")
    words: dict[str, object] = {}
    if column:
        entity = f"{Kind.FEED}/{feed}/column/{column}"
        words = words_of(asked, entity) if asked.find("metadata get", entity=entity) is not None else {}
        words["columns"] = address_of(Kind.FEED, feed, "columns")
    title = f"{feed}.{column}" if column else f"Columns of {feed}"
    return _show(asked, title, "lineage column", {"feed": feed, "column": column, **_to_ask(given)}, given, words)


def _read_controls(asked: Asked, *more: str) -> dict[str, str]:
    return {each: asked.one(each) for each in ("direction", "levels", *more)}


def _to_ask(given: dict[str, str]) -> dict[str, str]:
    direction = given["direction"]
    return {
        **{name: value for name, value in given.items() if name != "direction"},
        **({direction: "true"} if direction in ("up", "down") else {}),
    }


def _show(
    asked: Asked, title: str, name: str, asks: dict[str, Any], controls: dict[str, str], words: Any = None
) -> View:
    parts: dict[str, Any] = {"picture": "", "error": "", "found": None, "runs": {}, "notes": (), "controls": controls}
    parts |= {"said": None, "columns": "", **(words or {})}
    try:
        result = asked.ask(name, **asks)
    except FeedAssetsError as exc:
        if exc.fault not in (Fault.MISSING, Fault.ASKED):
            raise
        parts |= {"error": describe_error(exc)}
        return View(template="lineage.html", title=title, parts=parts, status=status_of(exc))
    is_window = isinstance(result, WindowLineage)
    graph: LineageGraph = result.graph if is_window else result
    find = _find_in_window(controls) if is_window else _find_address
    table = _table_of_window(result, find, graph) if is_window else _table_of(graph, find)
    parts |= {"found": table, "runs": _runs_of(result) if is_window else {}, "notes": result.notes}
    try:
        parts["picture"] = Markup(graph.draw(find)) if graph.nodes else ""
    except WrongUsageError as exc:
        parts["error"] = str(exc)
    return View(template="lineage.html", title=title, parts=parts)


def _find_address(series: Sequence[Node]) -> str:
    """Return the address of nodes that differ in their time alone."""
    first, last = series[0], series[-1]
    kind = {NodeKind.EVENT: NodeKind.FEED, NodeKind.ATTEMPT: NodeKind.PROCESS}.get(first.kind, first.kind)
    if first.run_id:
        return address_of("run", first.run_id)
    if kind is NodeKind.COLUMN:
        feed, _, column = first.name.partition(".")
        return address_of("feed", feed, "columns") if column == "*" else address_of("feed", feed, "column", column)
    if kind in _GROUPS:
        return address_of("lineage", kind, first.name)
    if kind not in (NodeKind.FEED, NodeKind.PROCESS, NodeKind.CLUSTER):
        return ""
    if first.nominal_time is None or last.nominal_time is None or "@" in first.name:
        return entity_address(kind, first.name)
    if first is last:
        return instance_address(kind, first.name, first.nominal_time)
    until = last.nominal_time + timedelta(minutes=1)
    span = {"start": render_datetime(first.nominal_time), "end": render_datetime(until)}
    if kind is NodeKind.FEED:
        return question_address("instance listing", {"feed": first.name, **span})
    return question_address("instance list", {"kind": kind, "name": first.name, **span})


def _find_in_window(controls: dict[str, str]) -> _FindAddress:
    """Return what finds addresses in a window: of a process its runs below, of data the same window from there."""

    def find(series: Sequence[Node]) -> str:
        node = series[0]
        if node.kind is NodeKind.PROCESS:
            return f"#{_anchor(node.kind, node.name, node.cluster)}"
        return address_of(node.kind, node.name, "lineage", **controls) if node.kind is NodeKind.FEED else ""

    return find


def _anchor(kind: str, name: str, cluster: str | None) -> str:
    return f"{kind}-{name}-{cluster}"


def _table_of(graph: LineageGraph, find: _FindAddress) -> Table:
    cells = {each.id: Cell(each.label, find([each])) for each in graph.nodes}
    rows = [
        [cells[each.source], Cell(each.name or each.kind.value), cells[each.target]]
        for each in graph.edges
        if each.source in cells and each.target in cells
    ]
    return Table(header=("from", "how", "to"), rows=rows) if rows else Table(text=graph.text)


def _table_of_window(found: WindowLineage, find: _FindAddress, graph: LineageGraph) -> Table:
    hrefs = {each.id: find([each]) for each in graph.nodes}
    rows = [
        [
            Cell(each.data.label, hrefs[each.data.label]),
            Cell("read by" if each.access is Access.READ else "written by"),
            Cell(each.program.label, hrefs[each.program.label]),
            *map(Cell, (f"{each.attempts:,}", render_datetime(each.first_at), render_datetime(each.last_at))),
        ]
        for each in found.relations
    ]
    header = ("data", "how", "process", "attempts", "first", "last")
    return Table(header=header, rows=rows, notes=[each for each in (found.summary,) if each])


def _runs_of(found: WindowLineage) -> dict[str, tuple[str, Sequence[str], int]]:
    """Return the label and the first runs of each process by its anchor, and how many there are."""
    runs: dict[Touching, dict[str, None]] = {}
    for each in found.relations:
        runs.setdefault(each.program, {}).update(dict.fromkeys(each.runs))
    return {
        _anchor(each.kind, each.name, each.cluster): (each.label, list(of)[:_MOST_RUNS], len(of))
        for each, of in runs.items()
    }
