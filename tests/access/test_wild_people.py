"""Random requests of every kind of principal: no internal error, nothing that somebody may not, and no hidden name."""

import random
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis import GenerationMode

from feed_assets.entities.common import Kind
from feed_assets.operation import Does, Operation
from tests.access.cells import OPERATIONS, OWNERS, WHO, Cell, Key, is_read_only, kinds_of, names_of
from tests.access.project import EXTENSION, NAMES, START, Served, read_files, restore, served, submit_jobs
from tests.drills import IS_DRILL, drill_seed, sized
from tests.server.test_schemathesis import load_schema

_OF = {kind: names_of(kind) for kind in NAMES}
_ALL = tuple(name for kind in map(str, Kind) for name in _OF[kind])
KNOWN: Mapping[str, Any] = {
    **{kind: _OF[kind] for kind in map(str, Kind)},
    "process": (*_OF["process"], *_OF["copy"]),
    "clusters": [[each] for each in _OF["cluster"]],
    "feeds": [[each] for each in _OF["feed"]],
    "names": [[each] for each in _ALL],
    "name": (*_ALL, *_OF["copy"], *_OF["job"]),
    "entity": [f"{kind}/{name}" for kind in map(str, Kind) for name in _OF[kind]],
    "to": [f"feed/{name}" for name in _OF["feed"]],
    "properties": [{"a": "b"}],
    "extension": [EXTENSION],
    "switch": ["status", "on", "off"],
    "new": ["another"],
}
HIDDEN = ("zqfeed", "zqtotals", "zqprocess", "zqsource", "zqcluster")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, Path]]:
    folder = tmp_path_factory.mktemp("wild")
    with pytest.MonkeyPatch.context() as patch, served(folder, patch) as found:
        submit_jobs(folder)
        yield found, folder


def find_cells(operation: Operation, told: dict[str, Any]) -> Iterator[Cell]:
    """Yield the cells of a request: one for each way in which its names can be meant."""
    choices = list[list[tuple[Key, bool] | None]]()
    for each in operation.parameters:
        value = told.get(each.param.option.replace("-", "_") or each.name)
        kinds = [of for of in kinds_of(operation, each) if of in _OF]
        kinds = [told["kind"]] if told.get("kind") in kinds and len(kinds) > 1 else kinds
        for text in value if isinstance(value, list) else [value]:
            if not isinstance(text, str) or not kinds:
                continue
            kind, _, name = text.rpartition("/") if each.param.proposes == "entities" else ("", "", text)
            meant = [(of, name) for of in kinds if name in _OF[of] and kind in ("", of)]
            choices.append([(key, is_read_only(operation, each)) for key in meant] or [None])
    for chosen in product(*choices):
        named = [each for each in chosen if each is not None]
        reads, changes = ([key for key, is_read in named if is_read is which] for which in (True, False))
        yield Cell(
            way="http", row=operation.name, path=operation.path, reads=(*reads,), changes=(*changes,), given=told
        )


@pytest.mark.sample
@pytest.mark.timeout(7200)
def test_row_134_no_principal_gets_what_it_may_not(server: tuple[Served, Path]) -> None:
    found, folder = server
    files = read_files(folder)
    chosen = drill_seed(moves=True)
    by_path = {each.path: each for each in OPERATIONS}
    asked = [each.ok() for each in load_schema(KNOWN, (START, "2026-01-01", "now")).get_all_operations()]
    asked = [each for each in asked if each.path in by_path]
    for each in asked if IS_DRILL else random.Random(chosen).sample(asked, 4):
        operation = by_path[each.path]
        can_be_wrong = any(each.definition.raw.get(part) for part in ("parameters", "requestBody"))
        for mode in (GenerationMode.POSITIVE, *([GenerationMode.NEGATIVE] if can_be_wrong else [])):
            _ask_all(found, operation, each.as_strategy(generation_mode=mode), chosen, partial(restore, folder, files))
        if operation.does is Does.ADMINISTERS:
            found.ask("super", next(each for each in OPERATIONS if each.name == "admin safemode"), {"switch": "off"})


def _ask_all(server: Served, operation: Operation, strategy: Any, chosen: int, restore_all: Callable[[], None]) -> None:
    """Each begins with the same definitions: what is done already is answered to everybody."""

    @seed(chosen)
    @settings(
        max_examples=sized(1, 20),
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=[*HealthCheck],
    )
    @given(case=strategy)
    def ask(case: Any) -> None:
        sent = {**(case.query or {}), **(case.body if isinstance(case.body, dict) else {})}
        told = {name: value for name, value in sent.items() if value is not None}
        for who in WHO:
            answer = case.call(base_url=server.url, session=server.clients[who])
            said = f"{answer.text} {answer.headers}"
            assert answer.status_code < 500 or answer.status_code == 503, (who, operation.name, told, said)
            assert who in OWNERS or not any(name in said for name in HIDDEN), (who, operation.name, told, said)
            if answer.status_code < 300:
                cells = [*find_cells(operation, told)]
                assert any(each.status_for(who) == 200 for each in cells), (who, operation.name, told, said)
                if operation.right is Does.DECLARES:
                    restore_all()

    ask()
