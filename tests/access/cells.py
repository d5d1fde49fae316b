"""The cells of the matrix: requests by each way, and what the table of docs/security.md says of each."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import yaml

from feed_assets.definitions.bundles.archive import BundleArchive, BundledEntity, render_archive
from feed_assets.entities.common import Kind
from feed_assets.operation import Does, Operation, Parameter
from feed_assets.operation_list import find_operation, list_operations
from feed_assets.server.aliases.records import Alias
from feed_assets.server.aliases.table import ALIASES
from feed_assets.server.ui.addresses import HOME, address_of
from feed_assets.server.ui.forms import FORMS
from feed_assets.server.ui.login import OPEN
from feed_assets.server.ui.questions import is_question
from feed_assets.server.ui.table import PAGES
from tests.access.project import BEHALF, EXTENSION, NAMES, PEOPLE, START, entities
from tests.documents.markdown import ROOT

Key = tuple[str, str]
Json = dict[str, Any]
WHO = ("nobody", *PEOPLE, "reader", *BEHALF)
OPERATIONS = [each for each in list_operations().items if each.has_route]
ROWS = re.findall(r"^\| `([^`]+)` \| (\w+) \| (.+) \|$", (ROOT / "docs/security.md").read_text(), re.MULTILINE)
SAID = {name: said for name, _, said in ROWS}
"""Who may, by the operation, as the page says."""
END = "2026-01-01T01:00Z"
_KNOWN = "everybody who is known"
OWNERS = ("super", "ann", "gus", "reader", "ann via portal")
_PROPOSED = {"jobs": "job", "holds": "hold", "groups": "cluster"}
_DEFAULTS = {"feed": "clicks", "process": "counts", "datasource": "shop", "cluster": "here"}
_DEFAULTS |= {"job": "shown", "hold": "shownhold"}


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A request, by a way: HTTP, the path of others, a page, a form; and the entities that it names. The row of an
    operation says what it needs; `rights` are those that a token needs.
    """

    way: str
    row: str = ""
    rights: tuple[Does, ...] = (Does.READS,)
    method: str = "GET"
    path: str
    query: Json = field(default_factory=dict)
    body: Any = None
    reads: tuple[Key, ...] = ()
    changes: tuple[Key, ...] = ()
    given: Json = field(default_factory=dict)
    rule: str = ""
    """The path of the route."""

    def status_for(self, who: str) -> int:
        """200 if it is allowed, as the page about rights says; or the status with which it is refused."""
        if self.path in OPEN:
            return 200
        if who == "nobody":
            return 401
        if who in BEHALF and self.way in ("page", "form"):
            return 400
        is_allowed = who not in BEHALF[2:] and (who != "reader" or {*self.rights} == {Does.READS})
        return 200 if is_allowed and self._allows(who) else 403

    def _allows(self, who: str) -> bool:
        said, without, only_if = SAID.get(self.row, _KNOWN).partition("; superusers without a name")
        said, only_status, _ = said.partition("; its status")
        if only_status and self.given.get("switch", "status") == "status":
            return True
        keys = (*self.reads, *self.changes)
        if said.endswith("; of another namespace superusers") and self.given.get("namespace"):
            return who == "super"
        if said in ("admins", "superusers"):
            return who == "super" or (who == "adm" and said == "admins")
        if without and not any(only_if or kind != "cluster" for kind, _ in keys):
            return who == "super" or (bool(only_if) and who in OWNERS)
        if who not in OWNERS and any(name.startswith("zq") for _, name in keys):
            return False
        return all(who == "super" or (who in OWNERS and _has_owner(key)) for key in self.changes)


def _has_owner(key: Key) -> bool:
    return key[0] != "cluster" and key[1] != "nobodys"


class Filled(NamedTuple):
    """The parameters of a request, and the entities that it names."""

    given: Json
    reads: tuple[Key, ...]
    changes: tuple[Key, ...]


def list_cells(folder: Path) -> list[Cell]:
    """All cells."""
    return [*_by_http(), *_declared(folder), *_by_paths(folder), *_by_pages(), *_by_forms()]


def kinds_of(operation: Operation, each: Parameter) -> tuple[str, ...]:
    """The kinds of what a parameter names; none if it is something else."""
    has_kind = any(of.type is Kind for of in operation.parameters)
    if each.param.proposes in _PROPOSED:
        return (_PROPOSED[each.param.proposes],)
    if each.type is not str:
        return ()
    of = each.param.of
    if each.param.proposes in ("names", "entities") or (each.name == "name" and has_kind and not of):
        of = of or tuple(Kind)
    found = tuple(map(str, of))
    if each.param.proposes == "entities":
        return (*found, "column")
    return (*found, "copy") if "process" in found and operation.context != "EntityContext" else found


def is_read_only(operation: Operation, each: Parameter) -> bool:
    """Whether what a parameter names is only read."""
    is_selected = kinds_of(operation, each) == ("cluster",) or (operation.name, each.name) == (
        "metadata copy",
        "entity",
    )
    return is_selected or not SAID[operation.name].startswith("owners")


def names_of(kind: str) -> tuple[str, ...]:
    names = NAMES["feed" if kind == "column" else kind]
    return (*names, "nobodys") if kind == "feed" else names


def fill(operation: Operation, at: Parameter | None = None, kind: str = "", name: str = "") -> Filled:
    """What is required, and an entity in the place of a parameter."""
    given: Json = {"dry_run": True} if "dry_run" in operation.given else {}
    reads, changes = list[Key](), list[Key]()
    selects = at is None or (tuple(map(str, at.param.of)) == ("cluster",) and not at.is_required)
    for each in operation.parameters:
        kinds = kinds_of(operation, each)
        if each.param.file or each.param.local or not (each.is_required or each is at or each.name == "kind"):
            continue
        if each.name == "kind":
            value = None if selects and not each.is_required else kind if not selects else _value_of(each)
            value = "process" if value == "copy" else value
        elif kinds:
            of = kind if each is at else "feed" if "feed" in kinds else kinds[0]
            of_it = name if each is at else _DEFAULTS[of]
            path = f"feed/{of_it}/column/a" if of == "column" else f"{of}/{of_it}"
            value = path if each.param.proposes == "entities" else of_it
            (reads if is_read_only(operation, each) else changes).append((of, of_it))
        else:
            value = _value_of(each)
        if value is not None:
            given[each.param.option.replace("-", "_") or each.name] = [value] if each.is_several else value
    return Filled(given, tuple(reads), tuple(changes))


def _value_of(each: Parameter) -> Any:
    if each.param.proposes in ("times", "extensions"):
        return START if each.param.proposes == "times" else EXTENSION
    known = {datetime: START, int: 1, bool: True, dict[str, str]: "a=b"}
    return str(each.choices[0]) if each.choices else known.get(each.type, "x")


def iter_filled(operation: Operation) -> Iterator[Filled]:
    """Yield requests for each place of a name, each kind, and each entity of it; and one without any."""
    places = [(each, kind) for each in operation.parameters for kind in kinds_of(operation, each)]
    for each, kind in places:
        yield from (fill(operation, each, kind, name) for name in names_of(kind))
    if not any(each.is_required for each, _ in places):
        yield fill(operation)


def _by_http() -> Iterator[Cell]:
    for each in OPERATIONS:
        if each.file is not None and (each.file.is_required or each.right is Does.DECLARES):
            continue
        for filled in iter_filled(each):
            yield _cell(each, filled)
            if each.name == "admin safemode":
                yield from (_cell(each, Filled({**filled.given, "switch": to}, (), ())) for to in ("on", "off"))
            if each.name == "search":
                yield _cell(each, Filled({**filled.given, "namespace": "others"}, (), ()))
            if "look" in {of.name for of in each.parameters}:  # what is recorded is notified
                given = {**filled.given, "look": True}
                of_subject = [key for key in filled.reads if key[0] != "cluster"]
                others = tuple(key for key in filled.reads if key[0] == "cluster")
                yield _cell(each, Filled(given, others, tuple(of_subject)))


def _cell(operation: Operation, filled: Filled, **others: Any) -> Cell:
    is_query = operation.method == "GET" or operation.file is not None
    told = {"query": filled.given} if is_query else {"body": filled.given}
    others |= {"rule": operation.path}
    of = {"method": operation.method, "path": operation.path, "reads": filled.reads, "changes": filled.changes, **told}
    rights = operation.find_rights(filled.given)
    return Cell(**{"way": "http", "row": operation.name, "rights": rights, "given": filled.given, **of, **others})


def _by_paths(folder: Path) -> Iterator[Cell]:
    """The paths of other systems, about each entity that they can name."""
    documents = {(each["kind"], each["name"]): each for each in entities(folder)}
    for each in ALIASES:
        for key in _find_subjects(each):
            kind, name = key or ("", "")
            entity = {"feed": "datasets", "process": "apps"}.get(kind, kind)
            parts = {"ns": "default", "entity:path": f"{entity}/{name}", "run": "x", "field": "a", "mode": "false"}
            parts |= {"types": "feed", "type": _TYPES.get(each.path, kind).format(kind=kind), "name": name}
            parts |= {"cluster": name, "asset_id": name, "dag_id": "counts"}
            parts |= {"name": EXTENSION} if each.operation.startswith("extension") and not key else {}
            path = _fill_in(each.path, parts)
            is_queue = path.endswith("queuedEvents")
            is_changed = SAID[each.operation].startswith("owners") and key is not None and not is_queue
            yield Cell(
                way="path",
                rule=each.path,
                row="queue show" if is_queue else _ROWS_OF.get(each.path, each.operation),
                rights=(each.right,),
                method=each.method,
                path=path,
                query={name: value for name, value in _QUERY.items() if name in each.parameters},
                body=_body_of(each, key, documents.get(key or ("", ""), {})),
                reads=() if is_changed or key is None else (key,),
                changes=(key,) if is_changed and key else (),
                given={"switch": "off"} if each.operation == "admin safemode" else {},
            )


def _fill_in(path: str, parts: Mapping[str, str]) -> str:
    return re.sub(r"{([^}]*)}", lambda found: parts[found[1]], path)


_RELATIONS = "/api/metadata/discovery/{type}/{name}/relations"
_TYPES = {_RELATIONS: "{kind}_entity", "/api/metadata/discovery/{type}/list": "feed_entity"}
_TYPES |= {"/api/admin/config/{type}": "build"}
_ROWS_OF = {_RELATIONS: "entity dependency"}
_QUERY = {"start": START, "end": END, "instanceTime": START, "path": "/clicks/x", "pipeline": "x", "direction": "both"}


def _find_subjects(alias: Alias) -> Iterator[Key | None]:
    """What the path of an alias names: an entity by its type and name, or of the one kind that it is about."""
    called, path = alias.called, alias.path
    found: tuple[str, ...] = ()
    if "{type}/{name}" in path:
        of = next((each for each in called.parameters if each.name in ("name", "names", "feed")), None)
        found = tuple(map(str, Kind)) if of is None else tuple({*kinds_of(called, of)} - {"copy"})
    elif "{entity:path}" in path and "runs" not in path:
        found = tuple(map(str, Kind))
    elif "{cluster}" in path:
        found = ("cluster",)
    elif called.name.startswith("extension job"):
        found = ("job",)
    elif "{type}" in path and alias.right is Does.DECLARES:
        found = tuple(map(str, Kind))
    elif "{asset_id}" not in path and "{dag_id}" in path:
        found = ()  # nothing is queued
    elif path.endswith("materialize"):
        yield from (("feed", "totals"), ("feed", "zqtotals"))  # their processes are Ann's, too
        return
    elif any(part in path for part in ("datasets/{name}", "streams/{name}", "{asset_id}", "{name}/replication")):
        found = ("feed",)
    yield from ((kind, name) for kind in found for name in names_of(kind))
    if not found:
        yield None


def _body_of(alias: Alias, key: Key | None, document: Json) -> Any:
    if alias.operation.startswith("metadata "):
        return {"a": "b"} if alias.operation == "metadata put" else ["a"]
    if alias.right is Does.DECLARES and "{type}" in alias.path and key:
        return _body(alias.called, key, document)
    return {"partition_key": START} if alias.path.endswith("materialize") else None


def _by_pages() -> Iterator[Cell]:
    """Each page, about each entity that it can name, and about what each operation finds."""
    for page in PAGES:
        if page.method != "GET":
            continue
        kinds: tuple[str, ...] = ("feed",) if "/feed/{name}" in page.path else ()
        if "{kind}" in page.path:
            is_of_all = page.path.endswith(("{name}", "{version}", "{name:path}"))
            kinds = tuple(map(str, Kind)) if is_of_all else ("feed", "process")
        for kind, name in ((of, name) for of in kinds for name in names_of(of)):
            parts = {"kind": kind, "name": name, "name:path": name, "column:path": "a", "version": "1"}
            parts |= {"instance": START}
            path = _fill_in(page.path, parts)
            key = (kind, name) if "/lineage/" not in page.path or kind == "cluster" else None
            yield Cell(way="page", row="entity status", rule=page.path, path=path, reads=(key,) if key else ())
        if not kinds and "{operation" not in page.path:
            yield Cell(way="page", rule=page.path, path=re.sub(r"{[^}]*}", "x", page.path))
    for operation in filter(is_question, OPERATIONS):
        for given, reads, changes in iter_filled(operation):
            path = address_of("ask", *operation.name.split(" "))
            told: Json = {"query": given, "reads": reads, "changes": changes, "given": given}
            yield Cell(way="page", row=operation.name, rule=f"{HOME}/ask/{{operation:path}}", path=path, **told)


def _by_forms() -> Iterator[Cell]:
    for page in FORMS:
        operation = find_operation(page.path.partition("/do/")[2].replace("/", " "))
        for given, reads, changes in iter_filled(operation):
            is_word = operation.name in ("metadata put", "metadata remove")
            body = {"entity": given.get("entity"), "name": "a", "value": "b", "seen": ""} if is_word else given
            rights = (page.right,)
            told: Json = {"reads": reads, "changes": changes, "given": given, "path": page.path, "body": body}
            yield Cell(way="form", row=operation.name, rule=page.path, rights=rights, method="POST", **told)


def _declared(folder: Path) -> Iterator[Cell]:
    """Each entity with another text, in each operation that takes definitions; what people say of it; and jobs."""
    documents = {(each["kind"], each["name"]): each for each in entities(folder)}
    for each in OPERATIONS:
        if each.file is None or not (each.file.is_required or each.right is Does.DECLARES):
            continue
        if each.group == "extension":
            for kind, name in (("feed", "zqnew"), ("feed", "new")):
                given = fill(each).given
                told = {"name": name, "permission": "0x750" if name == "zqnew" else "*", "description": "other"}
                given |= {"parameter": ["=".join(pair) for pair in told.items()]}
                given |= {"name": "new"} if each.name != "extension job update" else {}
                yield _cell(each, Filled(given, (), ((kind, name),)))
            continue
        for key in ((kind, name) for kind in map(str, Kind) for name in names_of(kind)):
            body = _body(each, key, documents.get(key, {}))
            given = {**fill(each).given, **({"yes": True} if each.name == "apply" else {})}
            yield _cell(each, Filled(given, (), (key,)), body=body)


def _body(operation: Operation, key: Key, document: Json) -> bytes:
    text = yaml.safe_dump({**document, "description": "other"}).encode()
    if operation.name == "metadata import":
        return json.dumps({"mutations": [{"entity": "/".join(key), "update": {"properties": {"a": "b"}}}]}).encode()
    if operation.name == "bundle import":
        bundled = BundledEntity(kind=Kind(key[0]), name=key[1], uid=uuid4(), file=f"entities/{'/'.join(key)}.yaml")
        none = b'{"mutations": []}'
        return render_archive(BundleArchive(entities=(bundled,), texts={bundled.file: text}, files={}, metadata=none))
    return text


def words_of(operation: Operation, given: Mapping[str, Any], file: Path | None = None) -> list[str]:
    """The words of a command for what a request gives."""
    options, places = list[str](), list[str]()
    for each in operation.parameters:
        name = each.param.option or each.name.replace("_", "-")
        is_file = each.param.file and (each.is_required or each.param.argument)
        value = str(file) if is_file and file else given.get(name.replace("-", "_"))
        told = [str(one) for one in (value if isinstance(value, list) else [value])]
        if value is not None and (each.param.argument or (each.param.file and each.is_required)):
            places += told
        elif value is None and each.param.argument and each.name == "instance":
            places.append(START)  # behind a kind that may be left out, the last word is an instance
        elif value is not None and each.param.commas:
            options += [f"--{name}", ",".join(told)]
        elif value is not None:
            options += [f"--{name}"] if value is True else [word for one in told for word in (f"--{name}", one)]
    return [*operation.name.split(" "), *places, *options, *(["--dry-run"] if given.get("dry_run") else [])]
