"""CDAP's paths to metadata, searches and lineage: its datasets are feeds here, its applications and programs processes.

Entities of other kinds have their own paths. Versions of applications say nothing: metadata are of all versions.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from typing import Any
from zoneinfo import ZoneInfo

from feed_assets.entities.graph import find_reached
from feed_assets.errors import WrongUsageError, shorten
from feed_assets.server.aliases.records import Alias, Asked, Json, reshape
from feed_assets.server.errors import RequestRefusedError
from feed_assets.timing.sequence import parse_time

_ROOT = "/v3/namespaces/{ns}"
_METADATA = f"{_ROOT}/{{entity:path}}/metadata"
_RUN = f"{_ROOT}/apps/{{entity:path}}/runs/{{run}}/metadata"
_FIELDS = f"{_ROOT}/datasets/{{name}}/lineage/fields"
_SHOWN = {"property": reshape("name, scope, value"), "tag": reshape("name, scope")}
_PARTS = {"property": "properties", "tag": "tags"}
_KINDS = {"datasets": "feed", "streams": "feed", "field": "column", "artifacts": "artifact", "versions": "version"}
_THEIRS = {"feed": "dataset", "process": "application", "column": "field"}
_TARGETS = {"stream": "feed", "app": "process", "program": "process", **{of: kind for kind, of in _THEIRS.items()}}


def find_path(entity: str) -> str:
    """Return the path of an entity here.

    >>> find_path("datasets/clicks/field/url"), find_path("apps/load/versions/2/workflows/load")
    ('feed/clicks/column/url', 'process/load')
    >>> find_path("apps/load"), find_path("apps/a/spark/b/runs/1f"), find_path("artifacts/a/versions/1")
    ('process/load', 'run/1f', 'artifact/a/version/1')
    """
    parts = entity.split("/")
    if parts[0] != "apps":
        return "/".join(part if at % 2 else _KINDS.get(part, part) for at, part in enumerate(parts))
    of_program = parts[4:] if parts[2:3] == ["versions"] else parts[2:]
    if not of_program:
        return "/".join(["process", *parts[1:2]])
    return "/".join(["run", *of_program[3:]] if of_program[2:3] == ["runs"] else ["process", *of_program[1:]])


def render_entity(path: str, namespace: str) -> Json:
    """Return the entity of a path in CDAP's form.

    >>> render_entity("feed/clicks/column/url", "default")
    {'details': {'namespace': 'default', 'dataset': 'clicks', 'field': 'url'}, 'type': 'field'}
    """
    parts = path.split("/")
    kinds = [_THEIRS.get(kind, kind) for kind in parts[::2]]
    return {"details": {"namespace": namespace, **dict(zip(kinds, parts[1::2], strict=True))}, "type": kinds[-1]}


def _require_namespace(asked: Asked) -> None:
    namespace = asked.one("ns")
    is_cluster = {"kind": "cluster", "filter_by": f"NAME:{namespace}"}  # a namespace in CDAP's form of a lineage
    if namespace not in ("default", asked.namespace) and not asked.ask("entity list", **is_cluster)["total"]:
        raise RequestRefusedError(HTTPStatus.NOT_FOUND, f"There is no namespace {namespace!r} here.")


def _entity(asked: Asked) -> Json:
    _require_namespace(asked)
    return {"entity": find_path(asked.one("entity"))}


def _add(asked: Asked, part: str, form: type[dict[str, Any]] | type[list[Any]]) -> Json:
    said = asked.body
    if not isinstance(said, form) or not said or any("=" in str(each) for each in said):
        what = "object of properties" if form is dict else "list of tags"
        raise WrongUsageError(f"The body is no JSON {what}, whose names have no '='.")
    return {**_entity(asked), part: said}


def _remove(asked: Asked, names: str = "") -> Json:
    return {**_entity(asked), **({names: [asked.one("name")]} if names else {"all": True})}


def _confirm(_: Any, asked: Asked) -> str:
    return f"The metadata of {find_path(asked.one('entity'))} are changed."


def _show_metadata(document: Any, asked: Asked, kind: str = "") -> Any:
    """Return a record for each scope, or only properties or tags."""
    said = [each for each in document["metadata"] if kind in ("", each["kind"])]
    match asked.one("responseFormat", "v5"), kind:
        case "v6", _:
            return {part: [_SHOWN[of](each) for each in said if each["kind"] == of] for of, part in _PARTS.items()}
        case "v5", "property":
            return {each["name"]: each["value"] for each in said}
        case "v5", "tag":
            return [*dict.fromkeys(each["name"] for each in said)]
        case "v5", _:
            entity = render_entity(document["entity"], asked.one("ns"))
            wanted = [scope for scope in ("USER", "SYSTEM") if asked.one("scope", scope).upper() == scope]
            return [{"entity": entity, "scope": scope, **_of_scope(said, scope)} for scope in wanted]
        case other, _:
            raise WrongUsageError(f"responseFormat {other!r} is neither v5 nor v6.")


def _of_scope(said: Iterable[Json], scope: str) -> Json:
    properties, tags = ([each for each in said if (each["scope"], each["kind"]) == (scope, kind)] for kind in _PARTS)
    return {"properties": {each["name"]: each["value"] for each in properties}, "tags": [each["name"] for each in tags]}


def _search(asked: Asked) -> Json:
    scope = asked.one("entityScope", "user").lower()
    if asked.one("responseFormat", "v5") != "v5" or scope not in ("user", "system"):
        raise WrongUsageError("The responseFormat of a search is v5, its entityScope user or system.")
    kinds = {found for each in asked.many("target") for found in (each, _TARGETS.get(each, each))}
    spaces = ["system"] if scope == "system" else asked.many("ns") + asked.many("namespaces")
    others = [*dict.fromkeys(spaces)] if {"", "default", asked.namespace}.isdisjoint(spaces) else []
    if len(others) > 1:
        raise WrongUsageError(f"One namespace is searched at once; {' and '.join(others)} were given.")
    return {
        "text": asked.one("query") or "*",
        "target": None if "all" in kinds else sorted(kinds),
        "namespace": next(iter(others), None),
        **({"cursors": "1"} if asked.one("cursorRequested").lower() == "true" else {}),
    }


def _show_found(document: Any, asked: Asked) -> Any:
    found = [(render_entity(each["entity"], asked.one("ns", "default")), each) for each in document["results"]]
    return {
        "results": [{"entity": entity, "metadata": each["metadata"]} for entity, each in found],
        **{name: document[name] for name in ("total", "offset", "limit", "cursors")},
        "cursor": next(iter(document["cursors"]), None),
        "sort": asked.one("sort"),
        "numCursors": int(asked.one("numCursors", "0")),
        "showHidden": asked.one("showHidden").lower() == "true",
        "entityScopes": [each.upper() for each in asked.many("entityScope")] or ["USER", "SYSTEM"],
    }


def _show_run(document: Any, asked: Asked) -> Any:
    _, program = find_path(f"apps/{asked.one('entity')}").split("/")
    if all(each["process"] != program for each in document["attempts"]):
        raise RequestRefusedError(HTTPStatus.NOT_FOUND, f"Run {asked.one('run')!r} is none of {program!r}.")
    said = {path: words for each in document["attempts"] for path, words in (each["words"] or {}).items()}
    records = ((render_entity(path, asked.one("ns")), words.get("USER", _NO_WORDS)) for path, words in said.items())
    return [{"entityId": entity, "scope": "USER", **record} for entity, record in records]


def _moment(asked: Asked, name: str) -> datetime:
    if not (text := asked.one(name)):
        raise WrongUsageError(f"Give {name}, in seconds since 1970, or as now-7d.")
    if not text.isdecimal():
        return parse_time(text, lambda: asked.now, lambda: ZoneInfo("UTC"))
    try:
        return datetime.fromtimestamp(int(text), UTC)
    except (ValueError, OverflowError, OSError) as exc:
        raise WrongUsageError(f"The {name} {shorten(text, 40)} is too far away.") from exc


def _window(asked: Asked) -> Mapping[str, datetime]:
    found = {name: _moment(asked, name) for name in ("start", "end")}
    if found["start"] > found["end"]:
        raise WrongUsageError("The start is after the end.")
    return found


def _lineage(asked: Asked) -> Json:
    window = {name: f"{moment:%Y-%m-%dT%H:%M:%SZ}" for name, moment in _window(asked).items()}
    _require_namespace(asked)
    return {"names": [asked.one("name")], "kind": "feed", "format": "cdap", **window}


def _show_lineage(document: Any, asked: Asked) -> Any:
    window = {name: int(moment.timestamp()) for name, moment in _window(asked).items()}
    return {**{name: document[name] for name in _NO_RELATIONS}, **window}


def _fields(asked: Asked, direction: str = "") -> Json:
    direction = asked.one("direction", direction)
    if direction not in ("incoming", "outgoing", "both"):
        raise WrongUsageError("The direction is one of incoming, outgoing and both.")
    as_of = _window(asked)["end"]
    _require_namespace(asked)
    ways = {"up": direction == "incoming", "down": direction == "outgoing"}
    return {"feed": asked.one("name"), "levels": 1, "as_of": f"{as_of:%Y-%m-%dT%H:%M:%SZ}", **ways}


def _split(node: Json) -> tuple[str, str]:
    """Return the feed and the column of a node."""
    feed, _, column = node["name"].partition(".")
    return feed, column


def _show_fields(document: Any, asked: Asked) -> Any:
    touched = {each[end] for each in document["edges"] for end in ("source", "target")} & {*document["starts"]}
    names = {_split(each)[1] for each in document["nodes"] if each["id"] in touched}
    return sorted(each for each in names - {"*"} if each.startswith(asked.one("prefix")))


def _by_direction(document: Any, asked: Asked, show: Callable[..., Any]) -> Json:
    """Return what is shown of the columns that the asked one came of, and of those that came of it."""
    nodes, wanted = {each["id"]: each for each in document["nodes"]}, asked.one("direction", "both")
    found = {}
    for way, one, other in (("incoming", "target", "source"), ("outgoing", "source", "target")):
        following: dict[str, list[str]] = defaultdict(list)
        for each in document["edges"]:
            following[each[one]].append(each[other])
        reached = [nodes[each] for each in sorted(find_reached(following, document["starts"]))]
        if wanted in (way, "both"):
            columns = [each for each in reached if each["kind"] == "column"]
            found[way] = show(document, asked, nodes, columns, way == "incoming")
    return found


def _show_sources(_: Any, asked: Asked, __: Any, columns: Iterable[Json], ___: bool) -> Any:
    fields: dict[str, list[str]] = defaultdict(list)
    for feed, column in sorted(map(_split, columns)):
        fields[feed].append(column)
    entity = {"namespace": asked.one("ns"), "entity": "DATASET"}
    return [{"dataset": {**entity, "dataset": feed}, "fields": of} for feed, of in fields.items()]


def _show_operations(document: Any, asked: Asked, nodes: Json, columns: Iterable[Json], is_incoming: bool) -> Any:
    edges: dict[str, list[Json]] = defaultdict(list)
    for each in document["edges"]:
        edges[each["target"]].append(each)
    found: dict[str, list[Json]] = defaultdict(list)
    for target in (nodes[each] for each in document["starts"]) if is_incoming else columns:
        feed, column = _split(target)
        for edge in edges[target["id"]]:
            source = nodes[edge["source"]]  # an expression between columns, or the column that was read
            is_text = source["kind"] == "expression"
            read = [nodes[each["source"]] for each in edges[source["id"]]] if is_text else [source]
            fields = [dict(zip(("origin", "name"), _split(each), strict=True)) for each in read]
            told = {"name": source["name"] if is_text else edge["kind"], "description": edge["kind"]}
            found[feed].append({**told, "inputs": {"fields": fields}, "outputs": {"fields": [column]}})
    return [{"programs": _programs(asked, feed), "operations": of} for feed, of in found.items()]


def _programs(asked: Asked, feed: str) -> list[Json]:
    """Return the program that has made the newest data of a feed."""
    events = asked.ask("feed events", feed=feed, limit="1")["events"]
    return [
        {
            "program": {"namespace": asked.one("ns"), "application": name, "program": name, "type": "Workflow"},
            "lastExecutionTimeInSeconds": int(datetime.fromisoformat(each["recorded_at"]).timestamp()),
        }
        for each in events
        if (name := each["payload"].get("process"))
    ]


_NO_WORDS: Json = {"properties": {}, "tags": []}
_NO_RELATIONS: Json = {"relations": [], "programs": {}, "data": {}}
_NO_GRAPH: Json = {"starts": [], "nodes": [], "edges": []}
_SEARCHED = (
    "scope, sort, offset, limit, cursor, numCursors=cursors, showHidden=hidden, query=, target=, cursorRequested=, "
    "entityScope=, responseFormat="
)
_TIMES = "start=, end="
_WINDOW = f"maxLevels=levels, levels, {_TIMES}"
_DIRECTED = f"direction=, field=column, {_TIMES}"

_get = partial(Alias, "GET", statuses={409: 400})
_metadata = partial(_get, operation="metadata get", names="scope, type=, responseFormat=", given=_entity)
_searched = partial(_get, operation="search", given=_search, form=_show_found)
_written = partial(Alias, names="async=, type=", form=_confirm, statuses={409: 400})
_touched = partial(_get, operation="lineage show", given=_lineage, form=_show_lineage, absent=_NO_RELATIONS)
_columns = partial(_get, operation="lineage column", absent=_NO_GRAPH)
_both = partial(_fields, direction="both")

CDAP: tuple[Alias, ...] = (
    _searched("/v3/metadata/search", names=f"{_SEARCHED}, namespaces="),
    _searched(f"{_ROOT}/metadata/search", names=_SEARCHED),
    Alias("GET", _RUN, "lineage run", "run", _require_namespace, _show_run),
    _metadata(_METADATA, form=_show_metadata),
    _metadata(f"{_METADATA}/properties", form=partial(_show_metadata, kind="property")),
    _metadata(f"{_METADATA}/tags", form=partial(_show_metadata, kind="tag")),
    _written("POST", f"{_METADATA}/properties", "metadata put", given=partial(_add, part="properties", form=dict)),
    _written("POST", f"{_METADATA}/tags", "metadata tag", given=partial(_add, part="tags", form=list)),
    _written("DELETE", _METADATA, "metadata drop", given=_entity),
    _written("DELETE", f"{_METADATA}/properties", "metadata remove", given=_remove),
    _written("DELETE", f"{_METADATA}/properties/{{name}}", "metadata remove", given=partial(_remove, names="names")),
    _written("DELETE", f"{_METADATA}/tags", "metadata untag", given=_remove),
    _written("DELETE", f"{_METADATA}/tags/{{name}}", "metadata untag", given=partial(_remove, names="tags")),
    _touched(f"{_ROOT}/datasets/{{name}}/lineage", names=_WINDOW),
    _touched(f"{_ROOT}/streams/{{name}}/lineage", names=_WINDOW),
    _columns(_FIELDS, names=f"prefix=, {_TIMES}", given=_both, form=_show_fields),
    _columns(f"{_FIELDS}/{{field}}", names=_DIRECTED, given=_fields, form=partial(_by_direction, show=_show_sources)),
    _columns(
        f"{_FIELDS}/{{field}}/operations",
        names=_DIRECTED,
        given=_both,
        form=partial(_by_direction, show=_show_operations),
    ),
)
