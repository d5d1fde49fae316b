"""Every operation with every kind of principal and of entity, as the table of docs/security.md says."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

import pytest

from feed_assets.access.rights import Needs
from feed_assets.access.table import SELECTS, find_named, find_need
from feed_assets.entities.common import Kind
from feed_assets.operation import Does, Operation, Parameter
from feed_assets.operation_list import list_operations
from tests.access.project import NAMES, PEOPLE, START, Served, served
from tests.drills import sized

OPERATIONS = [each for each in list_operations().items if each.has_route]
OWNERS = ("super", "ann", "gus")
SAID = {each: each.value for each in Needs} | {Needs.OWNER: "owners and groups of what it names"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with pytest.MonkeyPatch.context() as patch, served(tmp_path_factory.mktemp("people"), patch) as found:
        yield found


def takes(operation: Operation, kind: str) -> bool:
    """Whether an operation may name an entity of a kind, other than a cluster by which it selects."""
    return any(each == (kind, "x") for each, _ in find_named(operation, fill(operation, kind, "x"), Needs.KNOWN))


def fill(operation: Operation, kind: str, name: str) -> dict[str, Any]:
    """The parameters of a request about an entity: what names it, and what is required."""
    given: dict[str, Any] = {"dry_run": True} if "dry_run" in operation.given else {}
    for each in operation.parameters:
        if each.param.file or each.param.local:
            continue
        value = _value(operation, each, kind, name)
        if value is not None:
            given[each.param.option.replace("-", "_") or each.name] = [value] if each.is_several else value
    return given


def _value(operation: Operation, each: Parameter, kind: str, name: str) -> Any:
    param = each.param
    if each.type is Kind and each.name == "kind":
        return kind if kind in (param.of or [*Kind]) else None
    if param.proposes == "entities":
        return f"{kind}/{name}"
    is_named = param.proposes == "names" or (
        each.name == "name" and any(of.type is Kind for of in operation.parameters)
    )
    if is_named and not param.of:
        return name
    if param.of and (kind in param.of or each.is_required):
        return name if kind in param.of else "here"
    if not each.is_required:
        return None
    known = {datetime: START, int: 1, bool: True, dict[str, str]: "a=b"}
    return each.choices[0] if each.choices else known.get(each.type, "x")


def may(who: str, need: Needs, *, is_hidden: bool) -> bool:
    """As the page says."""
    if need is Needs.ADMIN:
        return who in ("super", "adm")
    if need is Needs.SUPERUSER:
        return who == "super"
    return who in OWNERS or (need is Needs.KNOWN and not is_hidden)


def need_of(operation: Operation, given: Mapping[str, Any]) -> Needs:
    return find_need(operation, {**{each.name: each.default for each in operation.parameters}, **given})


def find_cells() -> Iterator[tuple[Operation, dict[str, Any], str, bool]]:
    """All requests: the operation, its parameters, who asks, and whether the table allows it."""
    for operation in OPERATIONS:
        kinds = [kind for kind in NAMES if takes(operation, kind)]
        for kind, name in [(each, name) for each in kinds for name in NAMES[each]]:
            given = fill(operation, kind, name)
            need = need_of(operation, given)
            yield from ((operation, given, who, may(who, need, is_hidden=name[:2] == "zq")) for who in PEOPLE)
        if not kinds and not (operation.file and operation.file.is_required):
            given = fill(operation, "none", "none")
            need = need_of(operation, given)
            if need is Needs.OWNER:  # of what it selects or changes, which is nothing here
                is_all = operation.does in (Does.ACTS, Does.NOTIFIES) and operation.name not in SELECTS
                need = Needs.SUPERUSER if is_all else Needs.KNOWN
            yield from ((operation, given, who, may(who, need, is_hidden=False)) for who in PEOPLE)


@pytest.mark.sample
def test_row_134_who_may_what_is_as_the_table_says(server: Served) -> None:
    for operation, given, who, allowed in [*find_cells()][:: sized(7, 1)]:
        answer = server.ask(who, operation, given)
        assert (answer.status_code != 403) == allowed, (operation.name, who, given, answer.text)
        assert allowed or "may" in answer.json()["detail"] or "is for" in answer.json()["detail"]


def test_row_133_nobody_may_anything(server: Served) -> None:
    for operation in OPERATIONS:
        assert server.ask("nobody", operation, {}).status_code == 401
