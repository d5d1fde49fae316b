"""The OpenAPI document: valid, whole, and true of what commands print."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator

from feed_assets.operation import Does
from feed_assets.operation_list import list_operations
from feed_assets.server.openapi import describe_routes
from feed_assets.server.page import render_page
from feed_assets.server.routes import list_routes

GOLDEN = Path(__file__).parents[1] / "cli" / "golden"


@pytest.fixture(scope="module")
def document() -> Any:
    return json.loads(json.dumps(describe_routes()))


def validator(document: Any, schema: Any) -> Draft202012Validator:
    return Draft202012Validator({**schema, "components": document["components"]})


def test_the_document_is_valid_and_has_every_route_with_its_right(document: Any) -> None:
    assert not [*OpenAPIV31SpecValidator(document).iter_errors()]
    for each in list_routes():
        assert document["paths"][each.path][each.method.lower()]["x-right"] == each.right


def test_every_result_is_as_the_document_says(document: Any) -> None:
    told = set()
    for each in list_routes():
        file = GOLDEN / f"{each.name.replace(' ', '-')}.json"
        if file.exists():
            answers = document["paths"][each.path][each.method.lower()]["responses"]
            schema = answers[str(each.answers)]["content"]["application/json"]["schema"]
            result = validator(document, schema)
            assert not [*result.iter_errors(json.loads(file.read_text()))], each.name
            assert [*result.iter_errors({})], each.name
            told |= {each.name} if [*result.iter_errors({"version": 2})] else set()
    assert {"instance list", "feed notify", "entity history", "queue add", "retention approve"} < told


def test_what_every_answer_has_is_required(document: Any) -> None:
    required = {name: each.get("required", []) for name, each in document["components"]["schemas"].items()}
    assert all("status" in required[name] for name in ("CalledBatch", "InitBatch", "EndedBatch"))
    assert {"quarantine", "process", "process_time", "attempt"} <= {*required["InstanceQuality"]}


def test_examples_are_as_their_schemas_say(document: Any) -> None:
    found = 0
    for each in list_routes():
        told = document["paths"][each.path][each.method.lower()]
        examples = [(one["schema"], one["example"]) for one in told.get("parameters", ()) if "example" in one]
        body: Mapping[str, Any] = told.get("requestBody", {}).get("content", {}).get("application/json", {})
        examples += [(body["schema"], body["example"])] if "example" in body else []
        for schema, example in examples:
            assert not [*validator(document, schema).iter_errors(example)], (each.path, example)
        found += bool(examples)
    assert found == sum(bool(each.example) for each in list_routes())


def test_a_time_is_told_once_with_its_forms(document: Any) -> None:
    parameters = document["paths"]["/api/v1/instance/dependency"]["get"]["parameters"]
    (instance,) = [each for each in parameters if each["name"] == "instance"]
    assert instance["schema"]["$ref"] == "#/components/schemas/Time"
    assert "now-7d" in document["components"]["schemas"]["Time"]["description"]


def test_a_parameter_that_needs_another_right_is_in_a_query_and_says_so(document: Any) -> None:
    """The guard has read no body. Who only reads has an author only for what such a parameter records."""
    needing = set()
    for each in list_operations().items:
        if more := [one for one in each.parameters if one.param.needs]:
            assert each.method == "GET"
            (told,) = [one for one in document["paths"][each.path]["get"]["parameters"] if one["name"] == more[0].name]
            assert f"It needs the right `{more[0].param.needs}`, too." in told["schema"]["description"]
            needing.add(each.name)
    only_read = {each for each in list_operations().items if each.does is Does.READS}
    assert {each.name for each in only_read if "author" in each.given} == needing == {"why", "instance listing"}


def test_conditions_and_keys_are_headers_of_what_takes_them(document: Any) -> None:
    told: dict[str, set[str]] = {}
    for path, each in document["paths"].items():
        for one in next(iter(each.values())).get("parameters", ()):
            told.setdefault(f"{one['in']} {one['name']}", set()).add(path.removeprefix("/api/v1/"))
    of_metadata = {f"metadata/{each}" for each in ("put", "tag", "untag", "remove", "drop")}
    assert told["header If-Match"] == {"apply", "entity/update", "entity/delete", *of_metadata}
    assert told["header Idempotency-Key"] == {"batch/init", "feed/notify"}


def test_the_page_for_people_has_every_operation_and_nothing_from_elsewhere(document: Any) -> None:
    page = render_page(document, "http://<here>")
    for each in list_routes():
        assert f"<code>{each.method} {each.path}</code>" in page
    page = page.replace("&#x27;", "'")
    assert "curl 'http://&lt;here&gt;/api/v1/why?name=daily-delays&amp;instance=2013-11-03'" in page
    assert "--json '{&quot;feed&quot;: &quot;flights&quot;" in page
    assert not re.search(r'<script|<link|<img|src=|href=(?!"#|"/ui")|url\(|@import', page)
    assert {*re.findall(r'href="#([^"]+)"', page)} == {*re.findall(r'<h2 id="([^"]+)">', page)} >= {"entity", "why"}
    assert "<code>now-7d</code>" in render_page({**document, "tags": [{"name": "x", "description": "`now-7d`"}]}, "")
