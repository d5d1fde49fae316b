"""Random requests made of the OpenAPI document: answers are as it says, and no token may more than its rights."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from feed_assets.operation import Does
from feed_assets.server.application import build_application
from feed_assets.server.guard import Guard
from feed_assets.server.identity.callers import Keeper
from feed_assets.server.openapi import describe_routes
from feed_assets.server.records import Address
from feed_assets.settings import load_settings
from tests.cli.project import must
from tests.drills import drill_seed, sized
from tests.server.project import open_project
from tests.server.wild import KNOWN

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
HOST = "http://127.0.0.1:3030"
TIMES = ("2013-11-03T05:00Z", "2013-11-03", "now", "now-7d")


@pytest.fixture
def schema(tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The document and the guarded application."""
    database = open_project(tmp_path, monkeypatch, state=database_url)
    monkeypatch.delenv("FEED_ASSETS_NOTIFY__OPS__URL")  # nobody is told
    keeper = Keeper(load_settings(), database, Address(host="127.0.0.1", port=3030, insecure=True), "ann")
    found = load_schema({name: [value] for name, value in KNOWN.items()}, TIMES)
    found.app = Guard(build_application(load_settings(), database), keeper)
    yield found
    database.close()


def load_schema(known: Mapping[str, Sequence[Any]], times: Sequence[str]) -> Any:
    """The document, with values that a project has among those that are tried, by the names of parameters."""

    def with_known(name: str, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"anyOf": [{"enum": [*known[name]]}, schema]} if name in known else schema

    document = json.loads(json.dumps(describe_routes()))
    schemas = document["components"]["schemas"]
    schemas["Time"] = {"anyOf": [{"enum": [*times]}, schemas["Time"]]}
    for told in (each for path in document["paths"].values() for each in path.values()):
        for each in told.get("parameters", ()):
            each["schema"] = with_known(each["name"], each["schema"])
        body = told.get("requestBody", {}).get("content", {}).get("application/json")
        for name, each in [*body["schema"]["properties"].items()] if body else ():
            body["schema"]["properties"][name] = with_known(name, each)
    return schemathesis.openapi.from_dict(document)


def _ask(operation: Any, mode: GenerationMode, examples: int, callers: Mapping[str, set[int]]) -> None:
    """Ask with random values for each token: the answer is described, and has one of some statuses, if any."""

    @seed(drill_seed())
    @settings(
        max_examples=examples,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=[*HealthCheck],
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def ask(case: Any) -> None:
        for token, statuses in callers.items():
            response = case.call(base_url=HOST, headers={"Authorization": f"Bearer {token}"} if token else {})
            case.validate_response(response, checks=CHECKS)
            assert not statuses or response.status_code in statuses, response.text

    ask()


@pytest.mark.long
@pytest.mark.sample
@pytest.mark.timeout(3600)
def test_each_answer_is_described_and_no_token_may_more_than_it(schema: Any, tmp_path: Path) -> None:
    tokens = {right: _make_token(right) for right in Does}
    whole, ended = _make_token(*Does), _make_token(Does.READS, name="ended")
    must("token", "revoke", "ended")
    unknown = {each: {401} for each in ("", ended, "fa_unknown")}
    for operation in (each.ok() for each in schema.get_all_operations()):
        if right := operation.definition.raw.get("x-right"):
            others = {token: {403} for name, token in tokens.items() if name != right}
            _ask(operation, GenerationMode.POSITIVE, 1, {**unknown, **others, tokens[right]: set()})
            can_be_wrong = any(operation.definition.raw.get(each) for each in ("parameters", "requestBody"))
            for mode in (GenerationMode.POSITIVE, *([GenerationMode.NEGATIVE] if can_be_wrong else [])):
                _ask(operation, mode, sized(1, 600), {whole: set()})
        if right in (Does.DECLARES, Does.ADMINISTERS):
            must("admin", "safemode", "off")
            must("entity", "submit-and-schedule", "all.yaml")


def _make_token(*may: Does, name: str = "") -> str:
    made = must("token", "create", name or f"of-tests-{'-'.join(may)}", "--may", ",".join(may), "--output", "json")
    bearer: str = json.loads(made.stdout)["bearer"]
    return bearer
