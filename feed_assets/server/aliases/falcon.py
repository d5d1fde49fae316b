"""Falcon's paths to entities, instances, metadata and the server, with its members and status codes, as JSON.

Source: `docs/src/site/twiki/restapi` and `prism/src/main/java/org/apache/falcon/resource` of apache/falcon.
"""

import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from functools import partial
from importlib.metadata import version
from typing import Any
from uuid import uuid4

from feed_assets.entities.common import Kind
from feed_assets.entities.maps import EMPTY
from feed_assets.errors import WrongUsageError
from feed_assets.operation_list import find_operation
from feed_assets.server.aliases.records import Alias, Asked, Json, reshape

_COLO, _WHO = "default", "user.name=, colo="
_EVERYTHING = 1_000_000
_REFUSED = dict.fromkeys((404, 409, 422), 400)
_ENTITY_TYPES = {f"{kind}_entity": kind.value for kind in Kind}
_GROUPS = {
    "user": ("owner", "owner", "owned-by"),
    "colo": ("colo", "colo", "collocated"),
    "tags": ("tag", "tags", ""),
    "groups": ("group", "groups", "grouped-as"),
    "pipelines": ("pipeline", "pipelines", "pipeline"),
}
"""Of the dimensions that are no entities: our group, the member with its values, and the label."""
_KINDS = {**_ENTITY_TYPES, "groups": "feed", "pipelines": "process"}
"""The kinds of what has a dimension, if it is one."""


def _told(message: str, status: str = "SUCCEEDED", of: Json = EMPTY, **members: Any) -> Json:
    """Return the result with a message; of a front, with what each colo says."""
    colos = of.get("colos") or [{"colo": _COLO, "status": status, "message": message}]
    found = {each["status"] for each in colos}
    said = {
        "status": found.pop() if len(found) == 1 else "PARTIAL",
        "message": "".join(f"{each['colo']}/{each['message'] or message}\n" for each in colos),
        "requestId": "".join(f"{each['colo']}/{uuid4()}\n" for each in colos),
    }
    return {**said, **members}


def _entries(found: Json | None) -> list[Json]:
    return [{"key": key, "value": str(value)} for key, value in (found or {}).items()]


def _draw(names: Mapping[Any, str], edges: Iterable[Json], label: str = "label") -> Json:
    drawn = [{"from": names[each["source"]], "to": names[each["target"]], "label": each[label]} for each in edges]
    return {"vertices": [*names.values()], "edges": drawn}


def _triage(graph: Json) -> Json:
    told = "({0[kind]}) {0[name]} ({0[nominal_time]}) [{0[status]}]"
    names = (told.format({**each, "kind": each["kind"].upper()}) for each in graph["vertices"])
    return _draw(dict(enumerate(names)), graph["edges"])


_ACTION = reshape("action=name, status, logFile=log")
_MADE: dict[str, Callable[[Any], Any]] = {
    "upper": str.upper,
    "milliseconds": lambda time: int(datetime.fromisoformat(time).timestamp() * 1_000) if time else 0,
    "thousands": lambda number: int(number * 1_000),
    "copy": lambda found: f"{found['feed']}/{found['nominal_time']}",
    "size": lambda size: -1 if size is None else size,
    "missed": lambda level: f"Missed SLA {level.title()}",
    "details": lambda found: ", ".join(map(str, found.get("details") or ())) or found.get("reason") or "",
    "entries": _entries,
    "map": lambda found: {"entry": _entries(found)},
    "actions": lambda found: [*map(_ACTION, found or ())],
    **{each: partial(lambda name, of: {name: of} if of else None, each) for each in ("tag", "pipeline", "cluster")},
}
_INSTANCE = (
    "instance=nominal_time, cluster, sourceCluster=source_cluster, startTime=started_at, endTime=ended_at, "
    "logFile=log, runId=attempt, status, details=:details, actions=actions:actions, wfParams=properties:entries"
)
_SHOW = reshape(_INSTANCE, _MADE)
_MADE["instances"] = lambda found: [_SHOW({**found, **each}) for each in found["instances"]]


def _listed(member: str, ours: str, names: str | Callable[[Json], Json], done: str = "Success!") -> Any:
    """Return the form of a list of ours, each with members by their names. What one lacks, such as the cluster, the
    document has.
    """
    give = names if callable(names) else reshape(names, _MADE)

    def form(document: Any, _: Asked) -> Json:
        if document.get("result") == "FAILED":
            raise WrongUsageError(document["message"])
        rows = [give({**document, **each}) for each in document[ours]]
        said = document.get("message") or document.get("action", "").upper() or done
        return _told(said, document.get("result", "SUCCEEDED"), document, **{member: rows})

    return form


def _bare(ours: str, names: str) -> Any:
    """Return the form of a list of entities, which has no status."""
    give = reshape(names, _MADE)
    return lambda document, _: {
        "totalResults": document.get("total", len(document[ours])),
        "entity": [*map(give, document[ours])],
    }


def _outcomes(document: Any, _: Asked) -> Json:
    done = (f"{each['outcome']} ({each['kind']}) {each['name']}" for each in document["outcomes"])
    return _told("; ".join(done) or "nothing has changed", of=document)


def _pipeline(document: Any, _: Asked) -> Json:
    names = {each["id"]: each["name"] for each in document["nodes"] if each["kind"] == "process"}
    return _draw(names, (each for each in document["edges"] if each["kind"] == "hands on"), "name")


def _range(asked: Asked) -> None:
    if not (asked.one("start") and asked.one("end")):
        raise WrongUsageError("Give start and end: what acts on instances does so in a range.")


def _of_feed(asked: Asked) -> None:
    if asked.one("type", "feed").lower() != "feed":
        raise WrongUsageError(f"The type is feed: a {asked.one('type')} has no such data.")


def _declared(asked: Asked) -> None:
    """Require that the body declares what the path names."""
    from feed_assets.loading.entity_documents import iter_entities

    content = asked.content.decode("utf-8", "replace").lstrip("\ufeff \t\r\n")
    keys = [each.key for each in iter_entities("body.xml" if content.startswith("<") else "body.yaml", content, None)]
    named = asked.one("type").lower(), asked.one("name")
    for kind, name in filter(None, keys):
        if kind != named[0] or named[1] not in ("", name):
            raise WrongUsageError(f"The body declares the {kind} {name!r}, and not {' '.join(filter(None, named))}.")


def _dimension(asked: Asked) -> Json:
    dimension, cluster = asked.one("type").lower(), asked.one("cluster")
    if dimension not in (known := (*_ENTITY_TYPES, *_GROUPS)):
        raise WrongUsageError(f"{asked.one('type')!r} is no type of dimensions. Types are {', '.join(known)}.")
    kind = "cluster" if cluster and dimension == "colo" else _KINDS.get(dimension)
    chosen = f"{'NAME' if kind == 'cluster' else 'CLUSTER'}:{cluster}" if cluster else None
    return {"kind": kind, "fields": "TAGS,PIPELINES", "num_results": _EVERYTHING, "filter_by": chosen}


def _dimensions(document: Any, asked: Asked) -> Json:
    dimension, found = asked.one("type").lower(), document["entities"]
    if dimension in ("tags", "pipelines"):
        names: Iterable[str] = (name for each in found for name in each[dimension] or ())
    elif dimension in _ENTITY_TYPES:
        names = (each["name"] for each in found)
    else:
        chosen, key = {f"{each['kind']}/{each['name']}" for each in found}, _GROUPS[dimension][1]
        has_key = any(each["name"] == key for each in asked.ask("keys list", beginning=key)["keys"])
        values = asked.ask("keys show", key=key, limit=_EVERYTHING)["values"] if has_key else ()
        names = (name for each in values if chosen & {*each["entities"]} for name in each["value"].split(", "))
    return _sized(sorted({*names}))


def _sized(found: list[Any]) -> Json:
    return {"results": found, "totalSize": len(found)}


def _metrics(document: Any, _: Asked) -> Json:
    give = reshape("name=:copy, TIMETAKEN=seconds:thousands, BYTESCOPIED=bytes, COPY=files", _MADE)
    copied = (each for each in document["instances"] if each["figures"])
    return _sized([give({**document, **each, **each["figures"]}) for each in copied])


def _named(asked: Asked) -> Json:
    return {**_dimension(asked), "filter_by": f"NAME:{asked.one('name')}"}


def _relations(document: Any, asked: Asked) -> Json:
    """Return what an entity has to do with, or the entities that belong to a group, to an owner or to a colo."""
    name, dimension = asked.one("name"), asked.one("type").lower()
    if dimension in _GROUPS:
        group, _, label = _GROUPS[dimension]
        edges = asked.ask("lineage group", kind=group, name=name)["edges"]
        found = [each["target"].split("/", 1) for each in edges if each["kind"] == "has"]
        into, out = [_vertex(each, f"{kind}_entity", label or name) for kind, each in found], list[Json]()
    else:
        into, out = _neighbours(asked, _KINDS[dimension], name)
        (entity,) = (each for each in document["entities"] if each["name"] == name)
        out += _words(asked, _KINDS[dimension], entity)
    return {"name": name, "type": dimension.upper(), "inVertices": into, "outVertices": out}


def _neighbours(asked: Asked, kind: str, name: str) -> tuple[list[Json], list[Json]]:
    into, out = list[Json](), list[Json]()
    for each in asked.ask("entity dependency", kind=kind, name=name)["dependencies"]:
        of = each["kind"] if kind == "cluster" else kind
        for tag in each["tags"] or ("runs-on" if of == "process" else "stored-in",):
            comes = (tag == "Input") is (kind == "process") if each["tags"] else kind == "cluster"
            (into if comes else out).append(_vertex(each["name"], f"{each['kind']}_entity", tag.lower()))
    return into, out


def _words(asked: Asked, kind: str, entity: Json) -> Iterator[Json]:
    said = asked.ask("metadata get", entity=f"{kind}/{entity['name']}")["metadata"]
    words = {**{each["name"]: each["value"].split(", ") for each in said if each["kind"] == "property"}, **entity}
    for dimension, (_, member, label) in _GROUPS.items():
        if _KINDS.get(dimension, kind) == kind:
            yield from (_vertex(each, dimension, label) for each in words.get(member) or ())


def _vertex(name: str, kind: str, label: str) -> Json:
    return {"name": name, "type": kind.upper(), "label": (label or name).partition("=")[0]}


def _version(_: Any, asked: Asked) -> Json:
    is_safe = str(asked.ask("admin safemode")["is_on"]).lower()
    return {"properties": _entries({"Version": version("feed-assets"), "Mode": "embedded", "safemode": is_safe})}


def _configuration(document: Any, asked: Asked) -> Json:
    settings = {each["name"]: each["value"] for each in document["settings"]}
    build = {"build.version": version("feed-assets")}
    known = {"build": build, **dict.fromkeys(("deploy", "startup", "runtime"), settings)}
    if (kind := asked.one("type")) not in known:
        raise WrongUsageError(f"{kind!r} is no type of configuration. Types are {', '.join(known)}.")
    return {"properties": _entries(known[kind])}


def _stack(*_: Any) -> str:
    frames = sys._current_frames().items()
    return "\n".join(f"thread {number}\n{''.join(traceback.format_stack(frame))}" for number, frame in frames)


def _switch(asked: Asked) -> Json:
    if (mode := asked.one("mode")) not in ("true", "false"):
        raise WrongUsageError(f"{mode!r} is neither true nor false.")
    return {"switch": "on" if mode == "true" else "off"}


def _row(path: str, operation: str, form: Any, names: str = "", given: Any = EMPTY, **others: Any) -> Alias:
    def give(asked: Asked) -> Any:
        found = given(asked) if callable(given) else given
        if (colo := asked.one("colo", "*")) in ("*", _COLO, ""):
            return found
        if not find_operation(operation).is_of_sites:
            raise WrongUsageError(f"There is no choice of colos for {operation!r}: leave colo out.")
        return {**(found or {}), "colo": colo}

    refusal = partial(_told, status="FAILED")
    told: dict[str, Any] = {"method": "GET", "refusal": refusal, "statuses": _REFUSED, **others}
    return Alias(path=f"/api/{path}", operation=operation, names=f"{_WHO}, {names}", given=give, form=form, **told)


def _of_one(path: str, operation: str, form: Any, names: str = "", **others: Any) -> Alias:
    """Return a row whose path has the type and the name of an entity."""
    return _row(f"{path}/{{type}}/{{name}}", operation, form, f"type=kind, name, {names}", **others)


_post, _post_one = partial(_row, method="POST"), partial(_of_one, method="POST")
_plain = partial(_row, refusal=str)
"""A row whose refusals are texts."""
_XML = "text/xml; charset=utf-8"
_FILTER = "filterBy=filter_by, orderBy=order_by, sortOrder=sort_order"
_PAGE = "offset, numResults=num_results"
_WORDS = f"nameseq, tagkeys, tags, {_FILTER}, {_PAGE}"
_RANGE = "start, end, lifecycle, clusters"
_CHOSEN = f"{_RANGE}, {_FILTER}, {_PAGE}"
_SUMMARIZED = f"type=kind, cluster, start, end, numInstances=num_instances, {_WORDS}"
_SOUGHT = f"type=kind, nameseq, tagkeys, instanceStatus=status, start, end, orderBy=order_by, {_PAGE}"
_BODY = "skipDryRun="
_COPIES = "name=feed, type=, numResults=num_results"
_NAMED = "name, type=kind:upper, nominalTime=nominal_time, tags=tags:tag"
_DATA = "cluster, instance=nominal_time, status, uri=url, creationTime=created_at:milliseconds, size=bytes:size"
_ENTITY = "type=kind, name, status, tags=tags:tag, pipelines=pipelines:pipeline, clusters=clusters:cluster"
_NEIGHBOUR = "cluster, entityName=name, entityType=kind:upper, instanceTime=nominal_time"

_STATES = ("schedule", "suspend", "resume")
_ENTITIES = _bare("entities", _ENTITY)
_LOCATIONS = _listed("feed", "feeds", "feedName=feed, clusterName=cluster, locationType=type:upper", "SUCCESS")
_SUMMARIES = _listed("entitySummaries", "entities", "type=kind, name, status, instances=:instances")
_LATE = _listed("instances", "rows", f"{_NEIGHBOUR}, tags=level:missed")
_INSTANCES = _listed("instances", "instances", _INSTANCE, "STATUS")
_PARAMS = _listed("instances", "instances", _INSTANCE, "PARAMS")
_ACTED = _listed("instances", "instances", f"{_INSTANCE}, status=after")
_FOUND = _listed("instances", "instances", f"{_INSTANCE}, {_NAMED}", "Instances Search Results")
_FILES = _listed("instances", "instances", _DATA)
_COUNTS = _listed("instancesSummary", "clusters", "cluster, map=counts:map", "SUMMARY")
_NEIGHBOURS = _listed("dependencies", "dependencies", f"{_NEIGHBOUR}, tags=tag")
_GRAPHS = _listed("triageGraphs", "graphs", _triage)

FALCON = (
    _row("entities/list", "entity list", _ENTITIES, f"fields, {_WORDS}"),
    _row("entities/list/{types}", "entity list", _ENTITIES, f"types=kind, fields, {_WORDS}"),
    _of_one("entities/status", "entity status", lambda document, _: _told(document["state"], of=document)),
    _of_one("entities/definition", "entity definition", lambda text, _: text, given={"format": "xml"}, media_type=_XML),
    _of_one("entities/dependencies", "entity dependency", _bare("dependencies", "name, type=kind, tag=tags")),
    _row("entities/summary/{type}", "entity summary", _SUMMARIES, _SUMMARIZED),
    _row("entities/lookup/feed", "entity lookup", _LOCATIONS, "path"),
    _row("entities/sla-alert/{type}", "sla alerts", _LATE, "type=kind, name, start, end"),
    _post("entities/validate/{type}", "entity validate", _outcomes, _BODY, given=_declared),
    _post("entities/submit/{type}", "entity submit", _outcomes, _BODY, given=_declared),
    _post("entities/submitAndSchedule/{type}", "entity submit-and-schedule", _outcomes, _BODY, given=_declared),
    _post("entities/update/{type}/{name}", "entity update", _outcomes, _BODY, given=_declared),
    _post(
        "entities/updateClusterDependents/{cluster}", "entity update-cluster-dependents", _outcomes, f"cluster, {_BODY}"
    ),
    _post_one("entities/schedule", "entity schedule", _outcomes, f"name=names, {_BODY}"),
    _post_one("entities/suspend", "entity suspend", _outcomes, f"name=names, {_BODY}"),
    _post_one("entities/resume", "entity resume", _outcomes, f"name=names, {_BODY}"),
    _post_one("entities/touch", "entity touch", _outcomes, _BODY),
    _of_one("entities/delete", "entity delete", _outcomes, "name=names", method="DELETE"),
    _of_one("instance/status", "instance status", _INSTANCES, f"{_CHOSEN}, allAttempts=all_attempts"),
    _of_one("instance/list", "instance list", _INSTANCES, f"{_CHOSEN}, allAttempts=all_attempts"),
    _of_one("instance/running", "instance running", _INSTANCES, f"lifecycle, {_FILTER}, {_PAGE}"),
    _of_one("instance/logs", "instance logs", _INSTANCES, f"{_CHOSEN}, runid=attempt"),
    _of_one("instance/params", "instance params", _PARAMS, "start=instance, lifecycle"),
    _row("instance/listing/{type}/{name}", "instance listing", _FILES, "type=, name=feed, start, end", given=_of_feed),
    _row("instance/search", "instance search", _FOUND, _SOUGHT),
    _of_one("instance/summary", "instance summary", _COUNTS, f"{_RANGE}, {_FILTER}"),
    _of_one("instance/dependencies", "instance dependency", _NEIGHBOURS, "instanceTime=instance"),
    _of_one("instance/triage", "instance triage", _GRAPHS, "start=instance"),
    *(
        _post_one(f"instance/{each}", f"instance {each}", _ACTED, _RANGE, given=_range)
        for each in ("kill", "suspend", "resume")
    ),
    _post_one("instance/rerun", "instance rerun", _ACTED, f"{_RANGE}, force", given=_range),
    *(_post(f"extension/{each}/{{name}}", f"extension job {each}", _outcomes, "name") for each in _STATES),
    _row("extension/delete/{name}", "extension job delete", _outcomes, "name", method="DELETE"),
    *(_post(f"extension/{each}/{{name}}", f"extension {each}", _outcomes, "name") for each in ("enable", "disable")),
    _post("extension/unregister/{name}", "extension unregister", _outcomes, "name"),
    _row("extension/describe/{name}", "extension describe", lambda text, _: _told(text.rstrip()), "name"),
    _plain("metadata/discovery/{type}/list", "entity list", _dimensions, "cluster=", given=_dimension, statuses={}),
    _plain(
        "metadata/discovery/{name}/replication-metrics/list", "replication status", _metrics, _COPIES, given=_of_feed
    ),
    _plain("metadata/discovery/{type}/{name}/relations", "entity list", _relations, given=_named, statuses={}),
    _plain("metadata/lineage/entities", "lineage group", _pipeline, "pipeline=name", given={"kind": "pipeline"}),
    _plain("entities/lineage", "lineage group", _pipeline, "pipeline=name", given={"kind": "pipeline"}),
    _row("admin/version", "settings", _version),
    _row("admin/config/{type}", "settings", _configuration),
    _row("admin/getuser", "settings", lambda _, asked: asked.author),
    _row("admin/stack", "admin safemode", _stack, given={"switch": "on", "dry_run": True}),  # it is for admins, too
    _row("admin/setSafeMode/{mode}", "admin safemode", lambda told, _: str(told["is_on"]).lower(), given=_switch),
)
