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
from feed_assets.errors import WrongUsageError
from feed_assets.server.aliases.records import Alias, Asked
from feed_assets.server.errors import RequestRefusedError
from feed_assets.timing.sequence import parse_time

_Json = Mapping[str, Any]
_ROOT = "/v3/namespaces/{ns}"
_METADATA = f"{_ROOT}/{{entity:path}}/metadata"
_DATASET = f"{_ROOT}/datasets/{{name}}/lineage"
_SCOPES = ("USER", "SYSTEM")
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


def render_entity(path: str, namespace: str) -> _Json:
    """Return the entity of a path in CDAP's form.

    >>> render_entity("feed/clicks/column/url", "default")
    {'details': {'namespace': 'default', 'dataset': 'clicks', 'field': 'url'}, 'type': 'field'}
    """
    parts = path.split("/")
    kinds = [_THEIRS.get(kind, kind) for kind in parts[::2]]
    return {"details": {"namespace": namespace, **dict(zip(kinds, parts[1::2], strict=True))}, "type": kinds[-1]}


def _require_namespace(asked: Asked) -> None:
    if (namespace := asked.one("ns")) not in ("default", asked.namespace):
        raise RequestRefusedError(HTTPStatus.NOT_FOUND, f"There is no namespace {namespace!r} here.")


def _entity(asked: Asked) -> _Json:
    _require_namespace(asked)
    return {"entity": find_path(asked.one("entity"))}


def _put(asked: Asked) -> _Json:
    properties = asked.body
    if not isinstance(properties, dict) or not properties or any("=" in name for name in properties):
        raise WrongUsageError("The body is no JSON object of properties, whose names have no '='.")
    return {**_entity(asked), "properties": properties}


def _tag(asked: Asked) -> _Json:
    tags = asked.body
    if not isinstance(tags, list) or not tags:
        raise WrongUsageError("The body is no JSON list of tags.")
    return {**_entity(asked), "tags": tags}


def _remove(asked: Asked, names: str) -> _Json:
    return {**_entity(asked), **({names: [asked.one("name")]} if "name" in asked.values else {"all": True})}


def _confirm(_: Any, asked: Asked) -> str:
    return f"The metadata of {find_path(asked.one('entity'))} are changed."


def _show_metadata(document: Any, asked: Asked, kind: str = "") -> Any:
    """Return a record for each scope, or only properties or tags."""
    said = [each for each in document["metadata"] if kind in ("", each["kind"])]
    by_kind = {part: [each for each in said if each["kind"] == of] for of, part in _PARTS.items()}
    match asked.one("responseFormat", "v5"), kind:
        case "v6", _:
            shown = {"properties": ("name", "scope", "value"), "tags": ("name", "scope")}
            return {part: [{name: each[name] for name in shown[part]} for each in by_kind[part]] for part in shown}
        case "v5", "property":
            return {each["name"]: each["value"] for each in said}
        case "v5", "tag":
            return [*dict.fromkeys(each["name"] for each in said)]
        case "v5", _:
            entity = render_entity(document["entity"], asked.one("ns"))
            wanted = [scope for scope in _SCOPES if asked.one("scope", scope).upper() == scope]
            return [{"entity": entity, "scope": scope, **_of_scope(by_kind, scope)} for scope in wanted]
        case other, _:
            raise WrongUsageError(f"responseFormat {other!r} is neither v5 nor v6.")


def _of_scope(by_kind: Mapping[str, Iterable[_Json]], scope: str) -> _Json:
    properties, tags = ([each for each in by_kind[part] if each["scope"] == scope] for part in _PARTS.values())
    return {"properties": {each["name"]: each["value"] for each in properties}, "tags": [each["name"] for each in tags]}


def _search(asked: Asked) -> _Json:
    target = asked.values.get("target", [])
    targets = [target] if isinstance(target, str) else target
    kinds = {*targets, *(_TARGETS[each] for each in targets if each in _TARGETS)}
    namespace = asked.one("ns") or asked.one("namespaces")
    return {
        "text": asked.one("query") or "*",
        "target": None if "all" in kinds else sorted(kinds),
        "namespace": None if namespace in ("", "default", asked.namespace) else namespace,
        **({"cursors": "1"} if asked.one("cursorRequested").lower() == "true" else {}),
    }


def _show_found(document: Any, asked: Asked) -> Any:
    namespace = asked.one("ns", "default")
    return {
        "results": [
            {"entity": render_entity(each["entity"], namespace), "metadata": each["metadata"]}
            for each in document["results"]
        ],
        **{name: document[name] for name in ("total", "offset", "limit", "cursors")},
        "cursor": next(iter(document["cursors"]), None),
        "sort": asked.one("sort"),
        "numCursors": int(asked.one("numCursors", "0")),
        "showHidden": asked.one("showHidden").lower() == "true",
        "entityScopes": ["USER"],
    }


def _run(asked: Asked) -> _Json:
    _require_namespace(asked)
    return {"run": asked.one("run")}


def _show_run(document: Any, asked: Asked) -> Any:
    said = {path: words for each in document["attempts"] for path, words in (each["words"] or {}).items()}
    nothing: _Json = {"properties": {}, "tags": []}
    return [
        {"entityId": render_entity(path, asked.one("ns")), "scope": "USER", **words.get("USER", nothing)}
        for path, words in said.items()
    ]


def _moment(asked: Asked, name: str) -> datetime:
    if not (text := asked.one(name)):
        raise WrongUsageError(f"Give {name}, in seconds since 1970, or as now-7d.")
    if not text.isdecimal():
        return parse_time(text, lambda: asked.now, lambda: ZoneInfo("UTC"))
    try:
        return datetime.fromtimestamp(int(text), UTC)
    except (ValueError, OverflowError, OSError) as exc:
        raise WrongUsageError(f"The {name} {text[:40]} is too far away.") from exc


def _window(asked: Asked) -> Mapping[str, datetime]:
    found = {name: _moment(asked, name) for name in ("start", "end")}
    if found["start"] > found["end"]:
        raise WrongUsageError("The start is after the end.")
    return found


def _lineage(asked: Asked) -> _Json:
    window = {name: f"{moment:%Y-%m-%dT%H:%M:%SZ}" for name, moment in _window(asked).items()}
    _require_namespace(asked)
    return {"names": [asked.one("name")], "kind": "feed", "format": "cdap", **window}


def _show_lineage(document: Any, asked: Asked) -> Any:
    window = {name: int(moment.timestamp()) for name, moment in _window(asked).items()}
    return {**{name: document[name] for name in _NO_RELATIONS}, **window}


def _fields(asked: Asked, direction: str = "") -> _Json:
    direction = asked.one("direction", direction)
    if direction not in ("incoming", "outgoing", "both"):
        raise WrongUsageError("The direction is one of incoming, outgoing and both.")
    as_of = _window(asked)["end"]
    _require_namespace(asked)
    ways = {"up": direction == "incoming", "down": direction == "outgoing"}
    return {"feed": asked.one("name"), "levels": 1, "as_of": f"{as_of:%Y-%m-%dT%H:%M:%SZ}", **ways}


def _split(node: _Json) -> tuple[str, str]:
    """Return the feed and the column of a node."""
    feed, _, column = node["name"].partition(".")
    return feed, column


def _show_fields(document: Any, asked: Asked) -> Any:
    touched = {each[end] for each in document["edges"] for end in ("source", "target")} & {*document["starts"]}
    names = {_split(each)[1] for each in document["nodes"] if each["id"] in touched}
    return sorted(each for each in names - {"*"} if each.startswith(asked.one("prefix")))


def _reach(document: _Json, *, upwards: bool) -> list[_Json]:
    """Return the columns that the asked one came of, or that came of it."""
    following: dict[str, list[str]] = defaultdict(list)
    for each in document["edges"]:
        one, other = (each["target"], each["source"]) if upwards else (each["source"], each["target"])
        following[one].append(other)
    reached = find_reached(following, document["starts"])
    return [each for each in document["nodes"] if each["id"] in reached and each["kind"] == "column"]


def _by_direction(asked: Asked, show: Callable[[bool], Any]) -> _Json:
    wanted = asked.one("direction", "both")
    return {way: show(way == "incoming") for way in ("incoming", "outgoing") if wanted in (way, "both")}


def _show_sources(document: Any, asked: Asked) -> Any:
    def show(upwards: bool) -> Any:
        fields: dict[str, set[str]] = defaultdict(set)
        for feed, column in map(_split, _reach(document, upwards=upwards)):
            fields[feed].add(column)
        datasets = ({"namespace": asked.one("ns"), "dataset": feed, "entity": "DATASET"} for feed in fields)
        return [{"dataset": one, "fields": sorted(of)} for one, of in zip(datasets, fields.values(), strict=True)]

    return _by_direction(asked, show)


def _show_operations(document: Any, asked: Asked) -> Any:
    nodes = {each["id"]: each for each in document["nodes"]}
    edges: dict[str, list[_Json]] = defaultdict(list)
    for each in document["edges"]:
        edges[each["target"]].append(each)

    def describe(edge: _Json) -> _Json:
        """Describe what made a column, of which columns: an expression between them, or nothing."""
        source, column = nodes[edge["source"]], _split(nodes[edge["target"]])[1]
        is_text = source["kind"] == "expression"
        read = [nodes[each["source"]] for each in edges[source["id"]]] if is_text else [source]
        fields = [dict(zip(("origin", "name"), _split(each), strict=True)) for each in read]
        name = source["name"] if is_text else edge["kind"]
        told = {"name": name, "description": edge["kind"]}
        return {**told, "inputs": {"fields": fields}, "outputs": {"fields": [column]}}

    def show(upwards: bool) -> Any:
        found: dict[str, list[_Json]] = defaultdict(list)
        for each in document["starts"] if upwards else [node["id"] for node in _reach(document, upwards=False)]:
            found[_split(nodes[each])[0]] += map(describe, edges[each])
        return [{"programs": _programs(asked, feed), "operations": of} for feed, of in found.items() if of]

    return _by_direction(asked, show)


def _programs(asked: Asked, feed: str) -> list[_Json]:
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


_REFUSED = {int(HTTPStatus.CONFLICT): int(HTTPStatus.BAD_REQUEST)}
_NO_RELATIONS: _Json = {"relations": [], "programs": {}, "data": {}}
_NO_GRAPH: _Json = {"starts": [], "nodes": [], "edges": []}
_SEARCHED = {
    **{name: name for name in ("scope", "sort", "offset", "limit", "cursor")},
    "numCursors": "cursors",
    "showHidden": "hidden",
    **dict.fromkeys(("query", "target", "cursorRequested", "entityScope", "responseFormat"), ""),
}
_TIMES = {"start": "", "end": ""}
_DIRECTED = {"direction": "", "field": "column", **_TIMES}

_reading = partial(Alias, "GET", statuses=_REFUSED)
_getting = partial(_reading, operation="metadata get", names={"scope": "scope", "type": "", "responseFormat": ""})
_searching = partial(_reading, operation="search", given=_search, form=_show_found)
_writing = partial(Alias, names={"async": "", "type": ""}, form=_confirm, statuses=_REFUSED)
_following = partial(_reading, operation="lineage column", absent=_NO_GRAPH)

CDAP: tuple[Alias, ...] = (
    _searching("/v3/metadata/search", names={**_SEARCHED, "namespaces": ""}),
    _searching(f"{_ROOT}/metadata/search", names=_SEARCHED),
    Alias(
        "GET",
        f"{_ROOT}/apps/{{entity:path}}/runs/{{run}}/metadata",
        "lineage run",
        given=_run,
        form=_show_run,
        statuses={int(HTTPStatus.BAD_REQUEST): int(HTTPStatus.NOT_FOUND)},
    ),
    _getting(_METADATA, given=_entity, form=_show_metadata),
    _getting(f"{_METADATA}/properties", given=_entity, form=partial(_show_metadata, kind="property")),
    _getting(f"{_METADATA}/tags", given=_entity, form=partial(_show_metadata, kind="tag")),
    _writing("POST", f"{_METADATA}/properties", "metadata put", given=_put),
    _writing("POST", f"{_METADATA}/tags", "metadata tag", given=_tag),
    _writing("DELETE", _METADATA, "metadata drop", given=_entity),
    *(
        _writing("DELETE", f"{_METADATA}/{part}{name}", f"metadata {verb}", given=partial(_remove, names=names))
        for part, verb, names in (("properties", "remove", "names"), ("tags", "untag", "tags"))
        for name in ("", "/{name}")
    ),
    *(
        _reading(
            f"{_ROOT}/{kind}/{{name}}/lineage",
            "lineage show",
            names={"levels": "levels", "maxLevels": "levels", **_TIMES},
            given=_lineage,
            form=_show_lineage,
            absent=_NO_RELATIONS,
        )
        for kind in ("datasets", "streams")
    ),
    _following(
        f"{_DATASET}/fields",
        names={"prefix": "", **_TIMES},
        given=partial(_fields, direction="both"),
        form=_show_fields,
    ),
    _following(f"{_DATASET}/fields/{{field}}", names=_DIRECTED, given=_fields, form=_show_sources),
    _following(
        f"{_DATASET}/fields/{{field}}/operations",
        names=_DIRECTED,
        given=partial(_fields, direction="both"),
        form=_show_operations,
    ),
)
