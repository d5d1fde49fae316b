"""Rename a feed or process: in the files with all that refer to it, and in everything that is recorded of it. Its data
stay where they are.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace

from pydantic import TypeAdapter, ValidationError
from sqlalchemy import Connection

from feed_assets.clock import SystemClock
from feed_assets.command_lines import instance_command
from feed_assets.context.errors import PlanOutdatedError, VerbRefusedError
from feed_assets.definitions.edits import Put
from feed_assets.definitions.recording import is_gone, is_in_folder
from feed_assets.definitions.renamed_texts import renamed_text
from feed_assets.definitions.store import Loaded
from feed_assets.definitions.verbs.context import EntityContext, find_kind, require_valid
from feed_assets.definitions.verbs.planning import require_digest
from feed_assets.definitions.verbs.schedules import settle_releases
from feed_assets.definitions.verbs.verb_results import EntityVerb
from feed_assets.entities.common import Kind, label_of
from feed_assets.entities.errors import EntityNotFoundError
from feed_assets.entities.fields import Name
from feed_assets.entities.triggers import iter_names
from feed_assets.errors import Fault
from feed_assets.issues import EntityKey, Issue
from feed_assets.json_form import Hidden
from feed_assets.loading.bundles import LoadedBundle
from feed_assets.log.definitions.records import Rename
from feed_assets.log.definitions.store import Definitions
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.leases import find_leased
from feed_assets.log.records import ProcessInstance, ProcessInstanceStatus
from feed_assets.releases.store import Releases
from feed_assets.sql.names import Renaming
from feed_assets.timing.dates import render_datetime

_NAME: TypeAdapter[str] = TypeAdapter(Name)
RENAMABLE = (Kind.FEED, Kind.PROCESS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Renamed:
    """A feed or process with another name, or what would get it with `dry_run`: the files and the other entities that
    change with it. `digest` is that of the change. If it had the name already, nothing changes.
    """

    kind: str
    former: str
    name: str
    is_change: bool = True
    recorded_version: int | None = None
    files: tuple[str, ...] = ()
    readers: tuple[str, ...] = ()
    digest: str | None = None
    warnings: tuple[Issue, ...] = ()
    reload_needed: bool = False
    dry_run: bool = False
    stopped: Hidden[tuple[ProcessInstance, ...]] = ()

    @property
    def lines(self) -> tuple[str, ...]:
        """What becomes of it, for people."""
        label = label_of((self.kind, self.former))
        if not self.is_change:
            return (f"{label}: it is called {self.name!r} already",)
        would = "would be " if self.dry_run else ""
        version = f", version {self.recorded_version}" if self.recorded_version is not None else ""
        found = [f"{label}: {would}renamed to {self.name!r}{version}"]
        found += [f"  with {reader}" for reader in self.readers]
        found += [f"  in {file}" for file in self.files]
        found += ["  its data stay where they are, and all that is recorded of it goes along"]
        found += ["  code is not searched for it: deps, load_instance and locate_instance need the new name"]
        return (*found, *([f"Plan {self.digest}"] if self.dry_run else []))

    @property
    def notes(self) -> tuple[str, ...]:
        """The warnings."""
        return tuple(each.line for each in self.warnings)


def rename(context: EntityContext, kind: Kind | None, old: str, new: str, digest: str | None = None) -> Renamed:
    """Rename a feed or process. If the files have the new name already, only the record and the readers change. With a
    `digest`, only the change that a dry run has shown is made.

    Raises:
        EntityNotFoundError: it is not declared.
        VerbRefusedError: the name is invalid or in use, or something works on it.
        DefinitionsError: a definition would have errors, or cannot be edited; carries the issues.
        PlanOutdatedError: the digest is that of another change.
    """
    loaded = context.load()
    kind = _find_kind(context, loaded, kind, old)
    key, after = (kind.value, old), (kind.value, new)
    with context.database.read() as connection:
        known = [each for each in Definitions(connection).renames() if (each.kind, each.former) == key]
    if key not in loaded.documents and is_gone(loaded.newest.get(key)):
        if not any(each.name == new for each in known):
            raise EntityNotFoundError(kind=kind, name=old, now=tuple(each.name for each in known))
        return Renamed(kind=kind, former=old, name=new, is_change=False, dry_run=context.dry_run)
    if key not in loaded.newest or is_gone(loaded.newest[key]):
        context.record()
        loaded = context.load()
    _require_name(loaded, key, new)
    edits = list(_iter_edits(context, loaded, Renaming(kind=kind, old=old, new=new)))
    readers = sorted({edited for edited, _ in edits} - {key})
    preview = context.store.preview([put for _, put in edits], now=context.now)
    found = [preview.before.bundle.digest, preview.after.bundle.digest, *key, new, preview.before.revision]
    planned = hashlib.sha256(json.dumps(found).encode()).hexdigest()
    if digest is not None:
        require_digest(planned, digest)
    warnings: list[Issue] = []

    def check(before: LoadedBundle, found: LoadedBundle) -> None:
        with context.database.read() as connection:
            _require_rest(connection, key)
        if (before.digest, found.digest) != (preview.before.bundle.digest, preview.after.bundle.digest):
            if digest is not None:
                raise PlanOutdatedError(digest=planned)
            raise VerbRefusedError(
                subject=label_of(key), reason="the definitions were changed meanwhile", next_step="Repeat the command."
            )
        warnings.extend(require_valid(context, before, found, [after, *readers]))

    renamed = Renamed(
        kind=kind,
        former=old,
        name=new,
        files=tuple(context.store.folder.shown(each.file) for each in preview.files),
        readers=tuple(map(label_of, readers)),
        digest=planned,
        dry_run=context.dry_run,
    )
    if context.dry_run:
        check(preview.before.bundle, preview.after.bundle)
        return replace(renamed, warnings=tuple(warnings))
    change = Rename(kind=kind, former=old, name=new, renamed_at=context.now, author=context.author)
    made = context.store.change(
        [put for _, put in edits],
        author=context.author,
        origin=f"{EntityVerb.RENAME} of {old}",
        now=context.now,
        check=check,
        rename=change,
    )
    if made is None:
        return replace(renamed, is_change=False)
    settle_releases(context)
    version = context.load().newest[after].version
    return replace(renamed, recorded_version=version, warnings=tuple(warnings), reload_needed=True)


def _find_kind(context: EntityContext, loaded: Loaded, kind: Kind | None, old: str) -> Kind:
    """Return the kind of an entity by its name, also if the files, or even the record, have only the new one."""
    if kind is not None:
        return kind
    of_record = [each for each in RENAMABLE if not is_gone(loaded.newest.get((each, old)))]
    if len(of_record) == 1 and not any((each, old) in loaded.documents for each in Kind):
        return of_record[0]
    with context.database.read() as connection:
        known = [] if of_record else [each for each in Definitions(connection).renames() if each.former == old]
    return find_kind(loaded, Kind(known[-1].kind) if known else None, old)


def _require_name(loaded: Loaded, key: EntityKey, new: str) -> None:
    """Require that an entity can get a name.

    Raises:
        VerbRefusedError: it cannot.
    """
    fault = _find_fault(loaded, key, new)
    if fault is not None:
        reason, remedy = fault
        asked = Fault.ASKED if (key[0], new) not in loaded.newest else Fault.STATE
        raise VerbRefusedError(subject=label_of((key[0], new)), reason=reason, next_step=remedy, fault=asked)


def _find_fault(loaded: Loaded, key: EntityKey, new: str) -> tuple[str, str] | None:
    """Return why an entity cannot get a name, and what to do; None if it can."""
    (kind, old), other = key, "Choose another name."
    record, known = loaded.newest.get((kind, new)), loaded.newest.get(key)
    if kind not in RENAMABLE:
        return f"a {kind} cannot be renamed", "Only feeds and processes can: declare another one beside it."
    try:
        _NAME.validate_python(new)
    except ValidationError:
        return "no feed and no process can have this name", "Begin with a letter; use letters, digits and -."
    if new == old or ((kind, new) in loaded.documents and key in loaded.documents):
        return "it is declared already", other
    if record is not None:
        return f"it {'was deleted' if is_gone(record) else 'is declared'}, and its record stays under this name", other
    if known is not None and not is_in_folder(known):
        return f"{label_of(key)} is built in Python", "Declare it in a file first: code is not edited."
    for process in loaded.bundle.bundle.processes if kind == Kind.FEED else ():
        named = {*iter_names(process.trigger.when)} if process.trigger and process.trigger.when else set()
        if old in named - process.inputs.keys() and new in process.inputs:
            return f"an input of {process.label} has this name, and its trigger would mean that input", other
    return None


def _require_rest(connection: Connection, key: EntityKey) -> None:
    """Require that nothing works on a feed or process, nor on what reads or writes it.

    Raises:
        VerbRefusedError: something does; says which run, and how to end it.
    """
    kind, name = key
    releases = Releases(connection).all().items()
    concerned = [
        of for of, listed in releases if any(key == (each.kind, each.name) for one in listed for each in one.members)
    ]
    at_work = [row for of in concerned for row in ProcessInstances(connection).unended(*of) if _is_begun(row)]
    for row in at_work[:1]:
        run = f"run {row.run_id} works on" if row.run_id else f"a run was requested ({row.request_key}) for"
        raise VerbRefusedError(
            subject=label_of(key),
            reason=f"{run} {row.process} {render_datetime(row.nominal_time)} on {row.cluster}",
            next_step="Wait for its end, or end it: "
            + instance_command("kill", row.process, row.nominal_time, row.cluster),
        )
    for lease in find_leased(connection, f"{kind}/{name}", SystemClock().now()):
        raise VerbRefusedError(
            subject=label_of(key),
            reason=f"{lease.holder} works on it at {render_datetime(lease.nominal_time)} on {lease.cluster}",
            next_step="Wait for its end.",
        )


def _is_begun(row: ProcessInstance) -> bool:
    is_requested = row.status is ProcessInstanceStatus.READY and row.request_key is not None
    return is_requested or row.status is ProcessInstanceStatus.RUNNING


def _iter_edits(context: EntityContext, loaded: Loaded, renaming: Renaming) -> Iterator[tuple[EntityKey, Put]]:
    """Yield the documents that change, each with the key that it has had."""
    own = (renaming.kind.value, renaming.old)
    for key, document in loaded.documents.items():
        if renaming.old in document.text:
            text = renamed_text(document.text, key, document.format, renaming, context.store.values)
            replaces = own if key == own else None
            if text != document.text:
                yield key, Put(text=text, format=document.format, source=document.file, replaces=replaces)
