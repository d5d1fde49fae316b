"""CDAP's paths to metadata, searches and lineage: its datasets are feeds here, its applications and programs processes.

Entities of other kinds have their own paths. Versions of applications say nothing: metadata are of all versions.
"""

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

from feed_assets.errors import WrongUsageError
from feed_assets.server.aliases.records import Alias, Asked
from feed_assets.server.errors import RequestRefusedError

_ROOT = "/v3/namespaces/{ns}"
_SCOPES = ("USER", "SYSTEM")
_KINDS = {"datasets": "feed", "streams": "feed", "field": "column", "artifacts": "artifact", "versions": "version"}
_THEIRS = {"feed": "dataset", "process": "application", "column": "field"}
_REFUSED = {int(HTTPStatus.CONFLICT): int(HTTPStatus.BAD_REQUEST)}
_WRITTEN = {"async": "", "type": ""}
_READ = {"scope": "scope", "type": "", "responseFormat": ""}


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
    return "/".join(["run", of_program[3]] if of_program[2:3] == ["runs"] else ["process", *of_program[1:]])


def render_entity(path: str, namespace: str) -> Mapping[str, Any]:
    """Return the entity of a path in CDAP's form.

    >>> render_entity("feed/clicks/column/url", "default")
    {'details': {'namespace': 'default', 'dataset': 'clicks', 'field': 'url'}, 'type': 'field'}
    """
    parts = path.split("/")
    kinds = [_THEIRS.get(kind, kind) for kind in parts[::2]]
    return {"details": {"namespace": namespace, **dict(zip(kinds, parts[1::2], strict=True))}, "type": kinds[-1]}


def _entity(asked: Asked) -> Mapping[str, Any]:
    namespace = asked.one("ns")
    if namespace not in ("default", asked.namespace):
        raise RequestRefusedError(HTTPStatus.NOT_FOUND, f"There is no namespace {namespace!r} here.")
    return {"entity": find_path(asked.one("entity"))}


def _put(asked: Asked) -> Mapping[str, Any]:
    properties = asked.body
    if not isinstance(properties, dict) or not properties or any("=" in name for name in properties):
        raise WrongUsageError("The body is no JSON object of properties, whose names have no '='.")
    return {**_entity(asked), "properties": properties}


def _tag(asked: Asked) -> Mapping[str, Any]:
    tags = asked.body
    if not isinstance(tags, list) or not tags:
        raise WrongUsageError("The body is no JSON list of tags.")
    return {**_entity(asked), "tags": tags}


def _remove(name: str = "") -> Callable[[Asked], Mapping[str, Any]]:
    def give(asked: Asked) -> Mapping[str, Any]:
        return {**_entity(asked), **({name: [asked.one("name")]} if "name" in asked.values else {"all": True})}

    return give


def _confirm(_: Any, asked: Asked) -> str:
    return f"The metadata of {find_path(asked.one('entity'))} are changed."


def _show(*kinds: str) -> Callable[[Any, Asked], Any]:
    """Return the form of metadata of some kinds: without kinds, a record for each scope."""

    def show(document: Any, asked: Asked) -> Any:
        said = [each for each in document["metadata"] if not kinds or each["kind"] in kinds]
        properties, tags = ([each for each in said if each["kind"] == kind] for kind in ("property", "tag"))
        form = asked.one("responseFormat", "v5")
        if form == "v6":
            scoped = {"properties": ("name", "scope", "value"), "tags": ("name", "scope")}
            parts = zip(scoped.items(), (properties, tags), strict=True)
            return {part: [{name: each[name] for name in names} for each in found] for (part, names), found in parts}
        if form != "v5":
            raise WrongUsageError(f"responseFormat {form!r} is neither v5 nor v6.")
        if kinds == ("property",):
            return {each["name"]: each["value"] for each in properties}
        if kinds == ("tag",):
            return [*dict.fromkeys(each["name"] for each in tags)]
        asked_for = asked.one("scope").upper()
        return [
            {
                "entity": render_entity(document["entity"], asked.one("ns")),
                "scope": scope,
                "properties": {each["name"]: each["value"] for each in properties if each["scope"] == scope},
                "tags": [each["name"] for each in tags if each["scope"] == scope],
            }
            for scope in _SCOPES
            if asked_for in ("", scope)
        ]

    return show


_METADATA = f"{_ROOT}/{{entity:path}}/metadata"


def _reading(part: str, *kinds: str) -> Alias:
    return Alias(
        "GET", _METADATA + part, "metadata get", names=_READ, given=_entity, form=_show(*kinds), statuses=_REFUSED
    )


def _writing(method: str, part: str, operation: str, given: Callable[[Asked], Mapping[str, Any]]) -> Alias:
    path = _METADATA + part
    return Alias(method, path, operation, names=_WRITTEN, given=given, form=_confirm, statuses=_REFUSED)


CDAP = (
    _reading(""),
    _reading("/properties", "property"),
    _reading("/tags", "tag"),
    _writing("POST", "/properties", "metadata put", _put),
    _writing("POST", "/tags", "metadata tag", _tag),
    _writing("DELETE", "", "metadata drop", _entity),
    _writing("DELETE", "/properties", "metadata remove", _remove()),
    _writing("DELETE", "/properties/{name}", "metadata remove", _remove("names")),
    _writing("DELETE", "/tags", "metadata untag", _remove()),
    _writing("DELETE", "/tags/{name}", "metadata untag", _remove("tags")),
)
