"""Falcon's paths to entities, instances, metadata and the server, with its members and status codes, as JSON.

Source: `docs/src/site/twiki/restapi` and `prism/src/main/java/org/apache/falcon/resource` of apache/falcon.
"""

import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from importlib.metadata import version
from types import MappingProxyType
from typing import Any
from uuid import uuid4

from feed_assets.entities.common import Kind
from feed_assets.errors import WrongUsageError
from feed_assets.server.aliases.records import Alias, Asked

_COLO = "default"
_EVERYTHING = 1_000_000
_REFUSED = dict.fromkeys(
    (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY), HTTPStatus.BAD_REQUEST
)
_WHO = {"user.name": "", "colo": ""}
_PAGE = {"orderBy": "order_by", "sortOrder": "sort_order", "offset": "offset", "numResults": "num_results"}
_CHOSEN = {"filterBy": "filter_by", **_PAGE}
_LISTED = {"fields": "fields", "nameseq": "nameseq", "tagkeys": "tagkeys", "tags": "tags", **_CHOSEN}
_RANGE = {"start": "start", "end": "end", "lifecycle": "lifecycle", "clusters": "clusters"}
_NAMED = {"type": "kind", "name": "name"}
_BODY = {"skipDryRun": ""}
_ENTITY_TYPES = {f"{kind}_entity": kind.value for kind in Kind}
_GROUPS = {"user": "owner", "colo": "colo", "tags": "tag", "groups": "group", "pipelines": "pipeline"}
_LABELS = {"owner": "owned-by", "colo": "collocated", "group": "grouped-as", "pipeline": "pipeline"}

_INSTANCE = {
    "instance": "nominal_time",
    "cluster": "cluster",
    "sourceCluster": "source_cluster",
    "startTime": "started_at",
    "endTime": "ended_at",
    "logFile": "log",
    "runId": "run_id",
}
_NEIGHBOUR = {"cluster": "cluster", "entityName": "name", "instanceTime": "nominal_time", "tags": "tag"}


def _told(message: str, status: str = "SUCCEEDED", **members: Any) -> Mapping[str, Any]:
    said = {"status": status, "message": f"{_COLO}/{message}\n", "requestId": f"{_COLO}/{uuid4()}\n"}
    return {**said, **members}


def _consolidated(document: Mapping[str, Any], done: str, **members: Any) -> Mapping[str, Any]:
    """Return what was found on all clusters. Raises WrongUsageError if it failed on each."""
    if document.get("result") == "FAILED":
        raise WrongUsageError(document["message"])
    return _told(document.get("message") or done, document.get("result", "SUCCEEDED"), **members)


def _renamed(found: Mapping[str, Any], **names: str) -> dict[str, Any]:
    """Return members of ours, by their names there; without those that are not known or empty."""
    return {theirs: found[ours] for theirs, ours in names.items() if found.get(ours)}


def _entries(found: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [{"key": key, "value": value} for key, value in found.items()]


def refuse(detail: str, _: int) -> Mapping[str, Any]:
    """Return Falcon's form of what is refused."""
    return _told(detail, "FAILED")


def _require_colo(asked: Asked) -> Mapping[str, Any]:
    if asked.one("colo", "*") not in ("*", _COLO, ""):
        raise WrongUsageError(f"There is no colo {asked.one('colo')!r} here. Leave it out, and choose with clusters.")
    return {}


def _range(asked: Asked) -> Mapping[str, Any]:
    if not (asked.one("start") and asked.one("end")):
        raise WrongUsageError("Give start and end: what acts on instances does so in a range.")
    return _require_colo(asked)


def _declared(asked: Asked) -> Mapping[str, Any]:
    """Require that the body declares what the path names."""
    from feed_assets.loading.entity_documents import iter_entities

    content = asked.content.decode("utf-8", "replace").lstrip("\ufeff \t\r\n")
    keys = [each.key for each in iter_entities("body.xml" if content.startswith("<") else "body.yaml", content, None)]
    named = asked.one("type").lower(), asked.one("name")
    for kind, name in filter(None, keys):
        if kind != named[0] or named[1] not in ("", name):
            raise WrongUsageError(f"The body declares the {kind} {name!r}, and not {' '.join(filter(None, named))}.")
    return {}


def _entities(document: Any, _: Asked) -> Mapping[str, Any]:
    return {"totalResults": document["total"], "entity": [*map(_entity, document["entities"])]}


def _entity(found: Mapping[str, Any]) -> Mapping[str, Any]:
    lists = {f"{each}s": {each: found[f"{each}s"]} for each in ("tag", "pipeline", "cluster") if found.get(f"{each}s")}
    return _renamed(found, type="kind", name="name", status="status") | lists


def _dependencies(document: Any, _: Asked) -> Mapping[str, Any]:
    return {"entity": [_renamed(each, name="name", type="kind", tag="tags") for each in document["dependencies"]]}


def _outcomes(document: Any, _: Asked) -> Mapping[str, Any]:
    done = (f"{each['outcome']} ({each['kind']}) {each['name']}" for each in document["outcomes"])
    return _told("; ".join(done) or "nothing has changed")


def _instances(document: Any, _: Asked) -> Mapping[str, Any]:
    found = [*map(_instance, document["instances"])]
    return _consolidated(document, document.get("action", "status").upper(), instances=found)


def _instance(found: Mapping[str, Any]) -> Mapping[str, Any]:
    details = ", ".join(map(str, found.get("details") or ())) or found.get("reason") or ""
    status = found.get("status") or found.get("after")
    return {**_renamed(found, **_INSTANCE), "status": status, "details": details}


def _summary(document: Any, _: Asked) -> Mapping[str, Any]:
    counts = []
    for each in document["clusters"]:
        found = {status: str(count) for status, count in each["counts"].items()}
        counts.append({"cluster": each["cluster"], "map": {"entry": _entries(found)}})
    return _consolidated(document, "SUMMARY", instancesSummary=counts)


def _neighbours(document: Any, _: Asked) -> Mapping[str, Any]:
    found = [{**_renamed(each, **_NEIGHBOUR), "entityType": each["kind"].upper()} for each in document["dependencies"]]
    return _consolidated(document, "Success!", dependencies=found)


def _triage(document: Any, _: Asked) -> Mapping[str, Any]:
    graphs = []
    for graph in document["graphs"]:
        names = [
            f"({each['kind'].upper()}) {each['name']} ({each['nominal_time']}) [{each['status']}]"
            for each in graph["vertices"]
        ]
        edges = (
            {"from": names[each["source"]], "to": names[each["target"]], "label": each["label"]}
            for each in graph["edges"]
        )
        graphs.append({"vertices": names, "edges": [*edges]})
    return _consolidated(document, "Success!", triageGraphs=graphs)


def _pipeline(document: Any, _: Asked) -> Mapping[str, Any]:
    def ends(kind: str, process: str, feed: str) -> Sequence[tuple[str, str]]:
        found = ((each[process], each[feed]) for each in document["edges"] if each["kind"] == kind)
        return [(one.partition("/")[2], other.partition("/")[2]) for one, other in found]

    edges = [
        {"from": maker, "to": reader, "label": feed}
        for maker, feed in ends("made", "source", "target")
        for reader, one in ends("read", "target", "source")
        if one == feed
    ]
    processes = [each["name"] for each in document["nodes"] if each["kind"] == "process"]
    return {"vertices": processes, "edges": edges}


def _dimension(asked: Asked) -> Mapping[str, Any]:
    kind, cluster = _ENTITY_TYPES.get(asked.one("type").lower()), asked.one("cluster")
    if kind is None and asked.one("type").lower() not in _GROUPS:
        known = ", ".join((*_ENTITY_TYPES, *_GROUPS))
        raise WrongUsageError(f"{asked.one('type')!r} is no type of dimensions. Types are {known}.")
    chosen = {"filter_by": f"CLUSTER:{cluster}"} if cluster else {}
    return {**({"kind": kind} if kind else {}), "fields": "TAGS,PIPELINES", "num_results": _EVERYTHING, **chosen}


def _dimensions(document: Any, asked: Asked) -> Mapping[str, Any]:
    kind, found = asked.one("type").lower(), document["entities"]
    if kind in ("tags", "pipelines"):
        names: Iterable[str] = (name for each in found for name in each[kind] or ())
    elif kind in _ENTITY_TYPES:
        names = (each["name"] for each in found)
    else:
        chosen = {f"{each['kind']}/{each['name']}" for each in found}
        key = {"user": "owner"}.get(kind, kind)
        has_key = any(each["name"] == key for each in asked.ask("keys list", beginning=key)["keys"])
        values = asked.ask("keys show", key=key, limit=_EVERYTHING)["values"] if has_key else ()
        names = (name for each in values if chosen & {*each["entities"]} for name in each["value"].split(", "))
    results = sorted({*names})
    return {"results": results, "totalSize": len(results)}


def _relations(document: Any, asked: Asked, kind: str, dimension: str) -> Mapping[str, Any]:
    """Return what an entity has to do with."""
    name, into, out = asked.one("name"), list[Mapping[str, str]](), list[Mapping[str, str]]()
    for each in document["dependencies"]:
        of = each["kind"] if kind == "cluster" else kind
        for tag in each["tags"] or ("runs-on" if of == "process" else "stored-in",):
            comes = (tag == "Input") is (kind == "process") if each["tags"] else kind == "cluster"
            (into if comes else out).append(_vertex(each["name"], f"{each['kind']}_entity", tag.lower()))
    (found,) = asked.ask("entity list", kind=kind, filter_by=f"NAME:{name}", fields="TAGS,PIPELINES")["entities"]
    out += [_vertex(each, "pipelines", "pipeline") for each in found["pipelines"] or ()]
    out += [_vertex(each, "tags", each.partition("=")[0]) for each in found["tags"] or ()]
    return {"name": name, "type": dimension.upper(), "inVertices": into, "outVertices": out}


def _members(document: Any, asked: Asked, kind: str, dimension: str) -> Mapping[str, Any]:
    """Return the entities that belong to a group, to an owner or to a colo."""
    name = asked.one("name")
    label = _LABELS.get(kind, name.partition("=")[0])
    found = [each["target"].split("/", 1) for each in document["edges"] if each["kind"] == "has"]
    into = [_vertex(each, f"{kind_of_it}_entity", label) for kind_of_it, each in found]
    return {"name": name, "type": dimension.upper(), "inVertices": into, "outVertices": []}


def _vertex(name: str, kind: str, label: str) -> Mapping[str, str]:
    return {"name": name, "type": kind.upper(), "label": label}


def _version(_: Any, asked: Asked) -> Mapping[str, Any]:
    is_on = asked.ask("admin safemode")["is_on"]
    told = {"Version": version("feed-assets"), "Mode": "embedded", "safemode": str(is_on).lower()}
    return {"properties": _entries(told)}


def _configuration(document: Any, asked: Asked) -> Mapping[str, Any]:
    kind = asked.one("type")
    if kind == "build":
        return {"properties": _entries({"build.version": version("feed-assets")})}
    if kind not in ("deploy", "startup", "runtime"):
        raise WrongUsageError(f"{kind!r} is no type of configuration. Types are build, deploy, startup and runtime.")
    return {"properties": _entries({each["name"]: each["value"] for each in document["settings"]})}


def _stack(*_: Any) -> str:
    frames = sys._current_frames().items()
    return "\n".join(f"thread {number}\n{''.join(traceback.format_stack(frame))}" for number, frame in frames)


def _switch(asked: Asked) -> Mapping[str, Any]:
    modes = {"true": "on", "false": "off"}
    if asked.one("mode") not in modes:
        raise WrongUsageError(f"{asked.one('mode')!r} is neither true nor false.")
    return {"switch": modes[asked.one("mode")]}


def _row(path: str, operation: str, form: Any, names: Mapping[str, str] = MappingProxyType({}), **others: Any) -> Alias:
    told: dict[str, Any] = {"method": "GET", "refusal": refuse, "statuses": _REFUSED, **others}
    return Alias(path=f"/api/{path}", operation=operation, names={**_WHO, **names}, form=form, **told)


def _of_one(path: str, operation: str, form: Any, names: Mapping[str, str] = _NAMED, **others: Any) -> Alias:
    """Return a row whose path has the type and the name of an entity."""
    told = {"given": _require_colo, **others}
    return _row(f"{path}/{{type}}/{{name}}", operation, form, {**_NAMED, **names}, **told)


def _said_plainly(path: str, operation: str, form: Any, names: Mapping[str, str], **others: Any) -> Alias:
    """Return a row whose refusals are texts."""
    return _row(path, operation, form, names, refusal=lambda detail, _: detail, **others)


def _of_kind(kind: str) -> Callable[[Asked], Mapping[str, Any]]:
    return lambda _: {"kind": kind}


FALCON = (
    _row("entities/list", "entity list", _entities, _LISTED),
    _row("entities/list/{types}", "entity list", _entities, {**_LISTED, "types": "kind"}),
    _of_one("entities/status", "entity status", lambda document, _: _told(document["state"])),
    _of_one(
        "entities/definition",
        "entity definition",
        lambda text, _: text,
        given=lambda asked: {**_require_colo(asked), "format": "xml"},
        media_type="text/xml; charset=utf-8",
    ),
    _of_one("entities/dependencies", "entity dependency", _dependencies),
    *(
        _row(f"entities/{path}", f"entity {verb}", _outcomes, _BODY, method="POST", given=_declared)
        for path, verb in (
            ("validate/{type}", "validate"),
            ("submit/{type}", "submit"),
            ("submitAndSchedule/{type}", "submit-and-schedule"),
            ("update/{type}/{name}", "update"),
        )
    ),
    *(
        _of_one(f"entities/{verb}", f"entity {verb}", _outcomes, {**_BODY, "name": "names"}, method="POST")
        for verb in ("schedule", "suspend", "resume")
    ),
    _of_one("entities/delete", "entity delete", _outcomes, {"name": "names"}, method="DELETE"),
    *(
        _of_one(f"instance/{verb}", f"instance {verb}", _instances, names)
        for verb, names in (
            ("status", {**_RANGE, **_CHOSEN, "allAttempts": "all_attempts"}),
            ("list", {**_RANGE, **_CHOSEN, "allAttempts": "all_attempts"}),
            ("running", {"lifecycle": "lifecycle", **_CHOSEN}),
        )
    ),
    _of_one(
        "instance/summary",
        "instance summary",
        _summary,
        {**_RANGE, "filterBy": "filter_by", "orderBy": "order_by", "sortOrder": "sort_order"},
    ),
    _of_one("instance/dependencies", "instance dependency", _neighbours, {"instanceTime": "instance"}),
    _of_one("instance/triage", "instance triage", _triage, {"start": "instance"}),
    *(
        _of_one(f"instance/{verb}", f"instance {verb}", _instances, names, method="POST", given=_range)
        for verb, names in (
            *((each, _RANGE) for each in ("kill", "suspend", "resume")),
            ("rerun", {**_RANGE, "force": "force"}),
        )
    ),
    _said_plainly(
        "metadata/discovery/{type}/list", "entity list", _dimensions, {"cluster": ""}, given=_dimension, statuses={}
    ),
    *(
        _said_plainly(
            f"metadata/discovery/{each}/{{name}}/relations",
            operation,
            partial(form, kind=kind, dimension=each),
            {"name": "name"},
            given=_of_kind(kind),
            statuses={},
        )
        for operation, form, kinds in (
            ("entity dependency", _relations, _ENTITY_TYPES),
            ("lineage group", _members, _GROUPS),
        )
        for each, kind in kinds.items()
    ),
    *(
        _said_plainly(path, "lineage group", _pipeline, {"pipeline": "name"}, given=_of_kind("pipeline"))
        for path in ("metadata/lineage/entities", "entities/lineage")
    ),
    _row("admin/version", "settings", _version),
    _row("admin/config/{type}", "settings", _configuration),
    _row("admin/getuser", "settings", lambda _, asked: asked.author),
    _row("admin/stack", "admin safemode", _stack),
    _row(
        "admin/setSafeMode/{mode}",
        "admin safemode",
        lambda document, _: _told(f"safemode is {'on' if document['is_on'] else 'off'}"),
        given=_switch,
    ),
)
