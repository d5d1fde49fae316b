"""The OpenAPI document of the routes, from the declarations of their operations: parameters, results and errors."""

import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache
from http import HTTPStatus
from importlib import metadata
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import click
from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode

from feed_assets.cli.door import PROBLEM
from feed_assets.cli.options import ListType
from feed_assets.json_form import VERSION
from feed_assets.loading.entity_files import EntityFile
from feed_assets.operation import Operation, Parameter
from feed_assets.operation_list import describe_group
from feed_assets.server.answers import JSON, media_type_of
from feed_assets.server.bodies import KEY, KEYED
from feed_assets.server.calls import command_of, list_parameters
from feed_assets.server.preconditions import CONDITIONED
from feed_assets.server.routes import DOCUMENT, HEALTH, METRICS, list_routes

_ABOUT = """Each operation that has a route, with the parameters and the JSON of its command. What only reads is asked
by GET. What acts takes its parameters as the JSON object in the body or, if the body is a file, in the query.
The headers `If-None-Match`, `If-Match` and `Idempotency-Key` say what is known already."""
_TIME = """`2013-11-03T05:00Z`, or `2013-11-03T06:00+01:00`; in the zone of the entity a day, a month or a key:
`2013-11-03`, `2013-11`, `2013-11-03-05:00`; `now`, `now-7d`, `now+90m`."""
_REFUSED: Mapping[HTTPStatus, str] = {
    HTTPStatus.BAD_REQUEST: "A parameter is wrong.",
    HTTPStatus.UNAUTHORIZED: "There is no token, or none that holds.",
    HTTPStatus.FORBIDDEN: "Who asks may not.",
    HTTPStatus.NOT_FOUND: "There is no such entity, instance or thing.",
    HTTPStatus.REQUEST_TIMEOUT: "The body has not come in time.",
    HTTPStatus.CONFLICT: "It cannot be as things are; a `result` says what was done of it.",
    HTTPStatus.PRECONDITION_FAILED: "The entity is not as `If-Match` says. Nothing has changed.",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "The body is too large.",
    HTTPStatus.UNPROCESSABLE_ENTITY: "The definitions are wrong: `issues` says where.",
    HTTPStatus.SERVICE_UNAVAILABLE: "The database or a storage is away: `Retry-After` says when to ask again.",
}
_MODE: JsonSchemaMode = "serialization"
_SHARED = "#/components/schemas/"
_TEXT: Mapping[str, Any] = {"type": "string"}
_PROBLEM = dict.fromkeys(("type", "title", "detail"), _TEXT)
_SCHEMAS: Mapping[str, Any] = {
    "Time": {"type": "string", "title": "Time", "description": _TIME},
    "Document": {"type": "object", "properties": {"version": {"const": VERSION}}, "required": ["version"]},
    "Problem": {
        "type": "object",
        "properties": {**_PROBLEM, "next_step": _TEXT, "status": {"type": "integer"}},
        "required": [*_PROBLEM, "status"],
    },
}
_TYPES: Mapping[Any, Mapping[str, Any]] = {
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    datetime: {"$ref": f"{_SHARED}Time"},
    dict[str, object]: {"type": "object"},
}
_FILES: Mapping[Any, Sequence[str]] = {EntityFile: ("application/yaml", "application/xml", "application/zip")}
_HEADERS: Mapping[str, tuple[Collection[str], str]] = {
    "If-Match": (
        CONDITIONED,
        "ETags of `entity/definition` or `metadata/get`: only if it still is as they say.",
    ),
    KEY: (KEYED, "The same as `key`: given again, nothing is done twice, and the answer is that of the first."),
}
_LOOKS: Mapping[str, tuple[str, str]] = {
    HEALTH: ("Whether the database answers.", JSON),
    METRICS: ("The metrics, for Prometheus.", "text/plain"),
    DOCUMENT: ("This document.", JSON),
}


class _Schemas(GenerateJsonSchema):
    """Schemas in which any value stands for what no schema describes."""

    def handle_invalid_for_json_schema(self, schema: Any, error_info: str) -> dict[str, Any]:  # noqa: ARG002
        """Return the schema of any value."""
        return {}


@cache
def describe_routes() -> Mapping[str, Any]:
    """Return the OpenAPI document."""
    routes = list_routes()
    kinds = {(each, at): kind for each in routes for at, kind in enumerate(_results_of(each))}
    asked = [(key, _MODE, TypeAdapter(kind)) for key, kind in kinds.items()]
    found, shared = TypeAdapter.json_schemas(asked, ref_template=f"{_SHARED}{{model}}", schema_generator=_Schemas)
    results: dict[Operation, list[Mapping[str, Any]]] = {}
    for (operation, at), kind in kinds.items():
        document = _document_of(operation, kind, found[(operation, at), _MODE], shared["$defs"])
        results.setdefault(operation, []).append(document)
    looks = {
        path: {"get": {"summary": text, "responses": _answers(HTTPStatus.OK, {kind: {"schema": {}}})}}
        for path, (text, kind) in _LOOKS.items()
    }
    groups = dict.fromkeys(each.group for each in routes)
    return {
        "openapi": "3.1.0",
        "info": {"title": "feed-assets", "version": metadata.version("feed-assets"), "description": _ABOUT},
        "security": [{}, {"token": []}],
        "tags": [{"name": each, "description": describe_group(each)} for each in groups],
        "paths": looks | {each.path: {each.method.lower(): _describe(each, results[each])} for each in routes},
        "components": {
            "schemas": {**shared["$defs"], **_SCHEMAS},
            "responses": {
                str(int(status)): {"description": text, "content": {PROBLEM: {"schema": {"$ref": f"{_SHARED}Problem"}}}}
                for status, text in _REFUSED.items()
            },
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _results_of(operation: Operation) -> tuple[Any, ...]:
    """Return the types of the results of an operation, but those without an end."""
    told = get_type_hints(operation.function, localns={operation.context: Any})["return"]
    kinds = get_args(told) if get_origin(told) in (Union, UnionType) else (told,)
    return tuple(each for each in kinds if get_origin(each) is not Iterator)


def _document_of(operation: Operation, kind: Any, schema: Any, defined: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema of the JSON form of a result: its keys, or members with the rows."""
    keys = defined.get(schema.get("$ref", "").removeprefix(_SHARED), schema).get("properties", {})
    if hasattr(kind, "document"):
        schema = {"properties": {operation.rows: keys.get("items", {})}}
    elif operation.rows and not hasattr(kind, operation.rows) and operation.rows not in keys:
        schema = {"properties": {operation.rows: schema}, "required": [operation.rows]}
    return {"allOf": [{"$ref": f"{_SHARED}Document"}, schema]}


def _describe(operation: Operation, results: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the description of an operation whose JSON is one of some results."""
    is_body = operation.file is None and operation.method == "POST"
    asked = _schemas_of(operation, in_query=not is_body)
    example = _example_of(operation, asked)
    required = [name for name, each in list_parameters(operation).items() if each.required]
    forms = asked["output"]["enum"] if "output" in asked else ("json", "text")
    result = {"type": "object"} if operation.plain else {"anyOf": results} if len(results) > 1 else results[0]
    answered = {media_type_of(form): {"schema": result if form == "json" else _TEXT} for form in forms}
    described: dict[str, Any] = {
        "operationId": operation.name.replace(" ", "_").replace("-", "_"),
        "summary": operation.sentence,
        "description": operation.about,
        "tags": [operation.group],
        "x-right": operation.right,
        "responses": _answers(operation.answers, answered, is_asked=operation.method == "GET"),
    }
    described["parameters"] = [
        {"name": name, "in": "header", "required": False, "schema": {**_TEXT, "description": about}}
        for name, (operations, about) in _HEADERS.items()
        if operation.name in operations
    ]
    if is_body:
        schema = {"type": "object", "properties": asked, "required": required, "additionalProperties": False}
        body = {JSON: {"schema": schema, **({"example": example} if example else {})}}
        return {**described, "requestBody": {"content": body, "required": bool(required)}}
    described["parameters"] += [
        {"name": name, "in": "query", "required": name in required, "schema": schema}
        | ({"example": example[name]} if name in example else {})
        for name, schema in asked.items()
    ]
    if operation.file is not None:
        types = _FILES.get(operation.file.type, ("application/octet-stream",))
        described["requestBody"] = {"content": {each: {} for each in types}, "required": operation.file.is_required}
    return described


def _answers(status: int, content: Mapping[str, Any], *, is_asked: bool = True) -> Mapping[str, Any]:
    return {
        **({"304": {"description": "It has not changed."}} if is_asked else {}),
        "200": {"description": "Nothing was made.", "content": content},
        str(int(status)): {"description": "What the command prints.", "content": content},
        **{str(int(each)): {"$ref": f"#/components/responses/{int(each)}"} for each in _REFUSED},
    }


def _schemas_of(operation: Operation, *, in_query: bool) -> Mapping[str, Mapping[str, Any]]:
    """Return the schemas of what a request may give, by name; commands share the form of the result, and flags."""
    declared, found = {each.name: each for each in operation.parameters}, dict[str, Mapping[str, Any]]()
    for name, each in list_parameters(operation).items():
        told = {"description": getattr(each, "help", "")}
        if each.name in declared:
            found[name] = _schema_of(declared[each.name], in_query)
        elif isinstance(each.type, click.Choice):
            found[name] = {"type": "string", "enum": [*each.type.choices], "default": "json", **told}
        else:
            found[name] = {"type": "boolean", "default": False, **told}
    return found


def _schema_of(each: Parameter, in_query: bool) -> Mapping[str, Any]:
    schema: Mapping[str, Any] = _TEXT
    if each.choices:
        schema = {"type": "string", "enum": [*map(str, each.choices)]}
    elif each.type == dict[str, str]:
        schema = {"type": "string", "pattern": "^[^=]+="} if in_query else {"type": "object"}
    elif each.type is int and each.param.least is not None:
        schema = {"type": "integer", "minimum": each.param.least}
    elif each.type in _TYPES:
        schema = _TYPES[each.type]
    if each.is_several and schema != _TYPES[dict[str, object]]:
        schema = {"type": "array", "items": schema}
    default = {} if each.default in (None, ()) else {"default": each.default}
    needs = f" It needs the right `{each.param.needs}`, too." if each.param.needs else ""
    return {**schema, "description": f"{each.param.help}{needs}", **default}


def _example_of(operation: Operation, asked: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the parameters that the example of the command gives."""
    command = command_of(operation)
    told, _, _ = command.make_parser(click.Context(command)).parse_args(shlex.split(operation.example))
    parameters = list_parameters(operation)
    given = {name: told.get(str(each.name)) for name, each in parameters.items()}
    return {
        name: _read_example(
            ",".join(value)
            if isinstance(value, list | tuple) and parameters[name].type.name == ListType.name
            else value,
            asked[name],
        )
        for name, value in given.items()
        if isinstance(value, str | list | tuple | bool)
    }


def _read_example(value: Any, schema: Mapping[str, Any]) -> Any:
    """Return what a command was given in the type that it has in JSON."""
    match schema.get("type"):
        case "integer":
            return int(value)
        case "array":
            values = value.split(",") if isinstance(value, str) else value
            return [_read_example(each, schema["items"]) for each in values]
        case "object":
            return dict(each.split("=", 1) for each in value)
    return next((each for each in schema.get("enum", ()) if each.lower() == value.lower()), value)
