"""Falcon's paths to entities, instances, metadata and the server, with its members and status codes, as JSON.

Source: `docs/src/site/twiki/restapi` and `prism/src/main/java/org/apache/falcon/resource` of apache/falcon.
"""

import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from http import HTTPStatus
from importlib.metadata import version
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
_ENTITY_TYPES = {f"{kind}_entity": kind.value for kind in Kind}
_GROUPS = {"user": "owner", "colo": "colo", "tags": "tag", "groups": "group", "pipelines": "pipeline"}
_LABELS = {"owner": "owned-by", "colo": "collocated", "group": "grouped-as", "pipeline": "pipeline"}

Form = Callable[[Any, Asked], Any]


def _told(message: str, status: str = "SUCCEEDED", **members: Any) -> Mapping[str, Any]:
    said = {"status": status, "message": f"{_COLO}/{message}\n", "requestId": f"{_COLO}/{uuid4()}\n"}
    return {**said, **members}


def _consolidated(document: Mapping[str, Any], done: str, **members: Any) -> Mapping[str, Any]:
    """Return what was found on all clusters. Raises WrongUsageError if it failed on each."""
    if document.get("result") == "FAILED":
        raise WrongUsageError(document["message"])
    return _told(document.get("message") or done, document.get("result", "SUCCEEDED"), **members)


def refuse(detail: str, _: int) -> Mapping[str, Any]:
    """Return Falcon's form of what is refused."""
    return _told(detail, "FAILED")


def _require_colo(asked: Asked) -> None:
    if asked.one("colo", "*") not in ("*", _COLO, ""):
        raise WrongUsageError(f"There is no colo {asked.one('colo')!r} here. Leave it out, and choose with clusters.")


def _subject(asked: Asked) -> Mapping[str, Any]:
    _require_colo(asked)
    return {"kind": asked.one("type"), "name": asked.one("name")}


def _subjects(asked: Asked) -> Mapping[str, Any]:
    _require_colo(asked)
    return {"kind": asked.one("type"), "names": [asked.one("name")]}


def _range(asked: Asked) -> Mapping[str, Any]:
    if not (asked.one("start") and asked.one("end")):
        raise WrongUsageError("Give start and end: what acts on instances does so in a range.")
    return _subject(asked)


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
    status = {"status": found["status"]} if found.get("status") else {}
    return {"type": found["kind"], "name": found["name"], **status, **lists}


def _dependencies(document: Any, _: Asked) -> Mapping[str, Any]:
    return {
        "entity": [
            {"name": each["name"], "type": each["kind"], **({"tag": each["tags"]} if each["tags"] else {})}
            for each in document["dependencies"]
        ]
    }


def _outcomes(document: Any, _: Asked) -> Mapping[str, Any]:
    done = (f"{each['outcome']} ({each['kind']}) {each['name']}" for each in document["outcomes"])
    return _told("; ".join(done) or "nothing has changed")


def _instances(document: Any, _: Asked) -> Mapping[str, Any]:
    found = [*map(_instance, document["instances"])]
    return _consolidated(document, document.get("action", "status").upper(), instances=found)


def _instance(found: Mapping[str, Any]) -> Mapping[str, Any]:
    members = {
        "instance": found["nominal_time"],
        "status": found.get("status") or found.get("after"),
        "cluster": found["cluster"],
        "sourceCluster": found.get("source_cluster"),
        "startTime": found.get("started_at"),
        "endTime": found.get("ended_at"),
        "logFile": found.get("log"),
        "runId": found.get("run_id"),
        "details": ", ".join(map(str, found.get("details") or ())) or found.get("reason") or "",
    }
    return {name: value for name, value in members.items() if value is not None}


def _summary(document: Any, _: Asked) -> Mapping[str, Any]:
    counts = [
        {
            "cluster": each["cluster"],
            "map": {"entry": [{"key": status, "value": str(count)} for status, count in each["counts"].items()]},
        }
        for each in document["clusters"]
    ]
    return _consolidated(document, "SUMMARY", instancesSummary=counts)


def _neighbours(document: Any, _: Asked) -> Mapping[str, Any]:
    found = [
        {
            "cluster": each["cluster"],
            "entityName": each["name"],
            "entityType": each["kind"].upper(),
            "instanceTime": each["nominal_time"],
            "tags": each["tag"],
        }
        for each in document["dependencies"]
    ]
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


def _relations(kind: str) -> Form:
    """Return the form of what an entity of a kind has to do with."""

    def show(document: Any, asked: Asked) -> Mapping[str, Any]:
        name, into, out = asked.one("name"), list[Mapping[str, str]](), list[Mapping[str, str]]()
        for each in document["dependencies"]:
            of = each["kind"] if kind == "cluster" else kind
            for tag in each["tags"] or ("runs-on" if of == "process" else "stored-in",):
                comes = (tag == "Input") is (kind == "process") if each["tags"] else kind == "cluster"
                (into if comes else out).append(_vertex(each["name"], f"{each['kind']}_entity", tag.lower()))
        (found,) = asked.ask("entity list", kind=kind, filter_by=f"NAME:{name}", fields="TAGS,PIPELINES")["entities"]
        out += [_vertex(each, "pipelines", "pipeline") for each in found["pipelines"] or ()]
        out += [_vertex(each, "tags", each.partition("=")[0]) for each in found["tags"] or ()]
        return {"name": name, "type": f"{kind}_entity".upper(), "inVertices": into, "outVertices": out}

    return show


def _members(kind: str, dimension: str) -> Form:
    """Return the form of the entities that belong to a group, of an owner or of a colo."""

    def show(document: Any, asked: Asked) -> Mapping[str, Any]:
        name = asked.one("name")
        label = _LABELS.get(kind, name.partition("=")[0])
        found = [each["target"].split("/", 1) for each in document["edges"] if each["kind"] == "has"]
        into = [_vertex(each, f"{kind_of_it}_entity", label) for kind_of_it, each in found]
        return {"name": name, "type": dimension.upper(), "inVertices": into, "outVertices": []}

    return show


def _vertex(name: str, kind: str, label: str) -> Mapping[str, str]:
    return {"name": name, "type": kind.upper(), "label": label}


def _properties(found: Mapping[str, object]) -> Mapping[str, Any]:
    return {"properties": [{"key": key, "value": value} for key, value in found.items()]}


def _version(_: Any, asked: Asked) -> Mapping[str, Any]:
    is_on = asked.ask("admin safemode")["is_on"]
    told = {"Version": version("feed-assets"), "Mode": "embedded", "safemode": str(is_on).lower()}
    return _properties(told)


def _configuration(document: Any, asked: Asked) -> Mapping[str, Any]:
    kind = asked.one("type")
    if kind == "build":
        return _properties({"build.version": version("feed-assets")})
    if kind not in ("deploy", "startup", "runtime"):
        raise WrongUsageError(f"{kind!r} is no type of configuration. Types are build, deploy, startup and runtime.")
    return _properties({each["name"]: each["value"] for each in document["settings"]})


def _stack(*_: Any) -> str:
    frames = sys._current_frames().items()
    return "\n".join(f"thread {number}\n{''.join(traceback.format_stack(frame))}" for number, frame in frames)


def _switch(asked: Asked) -> Mapping[str, Any]:
    modes = {"true": "on", "false": "off"}
    if asked.one("mode") not in modes:
        raise WrongUsageError(f"{asked.one('mode')!r} is neither true nor false.")
    return {"switch": modes[asked.one("mode")]}


def _reading(path: str, operation: str, names: Mapping[str, str], form: Form, **others: Any) -> Alias:
    told: dict[str, Any] = {"method": "GET", "given": _subject, "refusal": refuse, "statuses": _REFUSED, **others}
    return Alias(path=f"/api/{path}", operation=operation, names={**_WHO, **names}, form=form, **told)


def _acting(path: str, operation: str, names: Mapping[str, str], form: Form, **others: Any) -> Alias:
    return _reading(path, operation, names, form, **{"method": "POST", "given": _subjects, **others})


def _of_metadata(path: str, operation: str, names: Mapping[str, str], form: Form, **given: Any) -> Alias:
    """Return an alias whose refusals are texts, and of what is not there 404."""
    give = (lambda asked: {**given, "name": asked.one("name")}) if given else _dimension
    return _reading(
        f"metadata/{path}", operation, names, form, given=give, refusal=lambda detail, _: detail, statuses={}
    )


_ONE = "{type}/{name}"
_BODY = {"skipDryRun": ""}

FALCON = (
    _reading("entities/list", "entity list", _LISTED, _entities, given=lambda _: {}),
    _reading("entities/list/{types}", "entity list", {**_LISTED, "types": "kind"}, _entities, given=lambda _: {}),
    _reading(f"entities/status/{_ONE}", "entity status", {}, lambda document, _: _told(document["state"])),
    _reading(
        f"entities/definition/{_ONE}",
        "entity definition",
        {},
        lambda text, _: text,
        given=lambda asked: {**_subject(asked), "format": "xml"},
        media_type="text/xml; charset=utf-8",
    ),
    _reading(f"entities/dependencies/{_ONE}", "entity dependency", {}, _dependencies),
    *(
        _acting(f"entities/{verb}/{{type}}", operation, _BODY, _outcomes, given=_declared)
        for verb, operation in (
            ("validate", "entity validate"),
            ("submit", "entity submit"),
            ("submitAndSchedule", "entity submit-and-schedule"),
        )
    ),
    _acting(f"entities/update/{_ONE}", "entity update", _BODY, _outcomes, given=_declared),
    *(
        _acting(f"entities/{verb}/{_ONE}", f"entity {verb}", _BODY, _outcomes)
        for verb in ("schedule", "suspend", "resume")
    ),
    _acting(f"entities/delete/{_ONE}", "entity delete", {}, _outcomes, method="DELETE"),
    *(
        _reading(
            f"instance/{verb}/{_ONE}",
            f"instance {verb}",
            {**_RANGE, **_CHOSEN, "allAttempts": "all_attempts"},
            _instances,
        )
        for verb in ("status", "list")
    ),
    _reading(f"instance/running/{_ONE}", "instance running", {"lifecycle": "lifecycle", **_CHOSEN}, _instances),
    _reading(
        f"instance/summary/{_ONE}",
        "instance summary",
        {**_RANGE, "filterBy": "filter_by", "orderBy": "order_by", "sortOrder": "sort_order"},
        _summary,
    ),
    _reading(f"instance/dependencies/{_ONE}", "instance dependency", {"instanceTime": "instance"}, _neighbours),
    _reading(f"instance/triage/{_ONE}", "instance triage", {"start": "instance"}, _triage),
    *(
        _acting(f"instance/{verb}/{_ONE}", f"instance {verb}", _RANGE, _instances, given=_range)
        for verb in ("kill", "suspend", "resume")
    ),
    _acting(f"instance/rerun/{_ONE}", "instance rerun", {**_RANGE, "force": "force"}, _instances, given=_range),
    _of_metadata("discovery/{type}/list", "entity list", {"cluster": ""}, _dimensions),
    *(
        _of_metadata(f"discovery/{each}/{{name}}/relations", "entity dependency", {}, _relations(kind), kind=kind)
        for each, kind in _ENTITY_TYPES.items()
    ),
    *(
        _of_metadata(f"discovery/{each}/{{name}}/relations", "lineage group", {}, _members(kind, each), kind=kind)
        for each, kind in _GROUPS.items()
    ),
    *(
        _reading(
            path,
            "lineage group",
            {"pipeline": "name"},
            _pipeline,
            given=lambda _: {"kind": "pipeline"},
            refusal=lambda detail, _: detail,
        )
        for path in ("metadata/lineage/entities", "entities/lineage")
    ),
    _reading("admin/version", "settings", {}, _version, given=lambda _: {}),
    _reading("admin/config/{type}", "settings", {}, _configuration, given=lambda _: {}),
    _reading("admin/getuser", "settings", {}, lambda _, asked: asked.author, given=lambda _: {}),
    _reading("admin/stack", "admin safemode", {}, _stack, given=lambda _: {}),
    _reading(
        "admin/setSafeMode/{mode}",
        "admin safemode",
        {},
        lambda document, _: _told(f"safemode is {'on' if document['is_on'] else 'off'}"),
        given=_switch,
    ),
)
