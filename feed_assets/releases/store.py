"""Store the releases of each process: which definitions govern its instances from which nominal time on. Pin the files
of workflows: store their content before a release refers to it, and find it again for a run.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    LargeBinary,
    PrimaryKeyConstraint,
    Table,
    select,
)

from feed_assets.command_lines import command_line, instance_command
from feed_assets.entities.bundle import Bundle
from feed_assets.entities.process import iter_workflows
from feed_assets.log.definitions.records import Member, Release
from feed_assets.log.records import EntityKey
from feed_assets.masking import get_logger
from feed_assets.plan.differences import AffectedProcess, find_running
from feed_assets.plan.edges import Key
from feed_assets.plan.pinned_files import (
    PinnedFile,
    PinnedFiles,
    ProjectFiles,
    parse_pinned_files,
    pinned_digests,
    workflows_of,
)
from feed_assets.plan.records import Plan, ProcessRecord
from feed_assets.plan.release_fingerprint import parse_fingerprint
from feed_assets.sql.column_types import Entries, Text, UtcDateTime
from feed_assets.sql.database import Database
from feed_assets.sql.names import NAMES_PROCESS, Renaming, content_in, names
from feed_assets.sql.rows import RowMapper, TableStore, build_insert_if_absent
from feed_assets.sql.tables import define_table, metadata
from feed_assets.timing.dates import render_datetime


def _member_values(member: Member) -> list[object]:
    return [member.kind, member.name, member.version]


def _to_member(values: list[Any]) -> Member:
    kind, name, version = values
    return Member(kind=kind, name=name, version=version)


def _rename_members(members: list[list[Any]], renaming: Renaming) -> list[list[Any]]:
    return [[kind, renaming.names(kind).get(name, name), version] for kind, name, version in members]


releases = define_table(
    "fa_releases",
    Column("process", Text, nullable=False, info=NAMES_PROCESS),
    Column("cluster", Text, nullable=False),
    Column("release", BigInteger, nullable=False),
    Column("effective_from", UtcDateTime, nullable=False),
    Column("fingerprint", Text, nullable=False),
    Column("members", Entries(_member_values, _to_member), nullable=False, info=names(content_in(_rename_members))),
    Column("recorded_at", UtcDateTime, nullable=False),
    Column("reason", Text, nullable=False),
    key=("process", "cluster", "release"),
)

workflow_files = Table(
    "fa_workflow_files",
    metadata,
    Column("digest", Text, nullable=False),
    Column("content", LargeBinary, nullable=False),
    PrimaryKeyConstraint("digest", name="fa_workflow_files_pk"),
)


_T = releases.c
_ROWS = RowMapper(releases, Release)
_F = workflow_files.c


class Releases(TableStore):
    """The releases as one transaction sees them."""

    def of(self, process: str, cluster: str) -> list[Release]:
        """Return the releases of a process, by number."""
        statement = _ROWS.select.where(_T.process == process, _T.cluster == cluster).order_by(_T.release)
        return _ROWS.find(self._connection, statement)

    def on(self, cluster: str) -> dict[EntityKey, list[Release]]:
        """Return the releases of all processes of a cluster, by number."""
        return self._by_process(_T.cluster == cluster)

    def all(self) -> dict[EntityKey, list[Release]]:
        """Return the releases of all processes, by number."""
        return self._by_process()

    def put(self, rows: Iterable[Release]) -> None:
        """Insert releases, or replace those with the same number."""
        _ROWS.put(self._connection, rows)

    def _by_process(self, *conditions: ColumnElement[bool]) -> dict[EntityKey, list[Release]]:
        found: dict[EntityKey, list[Release]] = defaultdict(list)
        statement = _ROWS.select.where(*conditions).order_by(_T.process, _T.cluster, _T.release)
        for release in _ROWS.find(self._connection, statement):
            found[EntityKey(release.process, release.cluster)].append(release)
        return dict(found)


class WorkflowFiles(TableStore):
    """The contents of files of workflows as one transaction sees them: each once for all releases, never removed."""

    def find(self, digest: str) -> bytes | None:
        """Return a content; None if it is not stored."""
        return self._connection.execute(select(_F.content).where(_F.digest == digest)).scalar()

    def known(self, digests: Collection[str]) -> frozenset[str]:
        """Return those of some digests whose content is stored."""
        found: set[str] = set()
        ordered = sorted(digests)
        for start in range(0, len(ordered), 500):
            statement = select(_F.digest).where(_F.digest.in_(ordered[start : start + 500]))
            found.update(self._connection.execute(statement).scalars())
        return frozenset(found)

    def put(self, contents: Mapping[str, bytes]) -> None:
        """Store contents by their digests."""
        if contents:
            rows = [{"digest": digest, "content": content} for digest, content in sorted(contents.items())]
            self._connection.execute(build_insert_if_absent(self._dialect, workflow_files), rows)


_logger = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedWork:
    """The files of an instance's release: `contents` by path, and the paths whose content has changed since.

    A changed file without content is read as it is now: it was too large to keep.
    """

    contents: Mapping[str, bytes] = field(default_factory=dict)
    changed: tuple[str, ...] = ()


def store_pinned_files(database: Database, plan: Plan, root: Path) -> bool:
    """Store the pinned files of a plan, unless they are stored.

    Returns:
        Whether the files are those of the plan; False if one has changed since the plan was loaded.
    """
    pinned, project = pinned_digests(plan), ProjectFiles(root=root)
    found: dict[str, PinnedFiles] = {}
    for key, digest in pinned.items():
        files = project.read(workflows_of(plan.processes[key]))
        if files is None or files.digest != digest:
            return False
        found[digest] = files
    with database.read() as connection:
        known = WorkflowFiles(connection).known(found.keys())
    new = [files for digest, files in found.items() if digest not in known]
    if not new:
        return True
    contents = {file.digest: file.path for files in new for file in files.files if file.is_kept}
    read = {digest: (root / path).read_bytes() for digest, path in contents.items()}
    with database.begin() as connection:
        WorkflowFiles(connection).put({**read, **{files.digest: files.render().encode() for files in new}})
    return True


def find_pinned_files(connection: Connection, digest: str) -> PinnedFiles | None:
    """Return the pinned files of a release; None if they are not stored."""
    content = WorkflowFiles(connection).find(digest) if digest else None
    return None if content is None else parse_pinned_files(content.decode())


def find_changed_paths(connection: Connection, governing: ProcessRecord, declared: ProcessRecord) -> tuple[str, ...]:
    """Return the files whose content a release keeps, and the declared process does not have any more."""
    then, now = (parse_fingerprint(record.fingerprint).files for record in (governing, declared))
    pinned = find_pinned_files(connection, then) if now != then else None
    present = find_pinned_files(connection, now) if pinned is not None else None
    if pinned is None or present is None:
        return ()
    return tuple(file.path for file in pinned.unlike(present) if file.is_kept)


def find_changed_files(connection: Connection, bundle: Bundle, root: Path) -> Mapping[Key, tuple[PinnedFile, ...]]:
    """Return the workflow files that have changed since the newest release of a process pinned them, by process and
    cluster; only processes that have some.
    """
    releases, project = Releases(connection).all(), ProjectFiles(root=root)
    found: dict[Key, tuple[PinnedFile, ...]] = {}
    for process in bundle.processes:
        present = project.read(workflow for _, workflow in iter_workflows(process))
        for cluster in process.clusters if present is not None else ():
            newest = releases.get(EntityKey(process.name, cluster))
            digest = parse_fingerprint(newest[-1].fingerprint).files if newest else ""
            if present is None or digest in ("", present.digest):
                continue
            pinned = find_pinned_files(connection, digest)
            if pinned is not None and (files := present.unlike(pinned)):
                found[process.name, cluster] = files
    return found


def with_changed_files(
    affected: Iterable[AffectedProcess], changed: Mapping[Key, tuple[PinnedFile, ...]], before: Bundle, after: Bundle
) -> tuple[AffectedProcess, ...]:
    """Add to the affected processes those that only their files affect."""
    found = {each.key: each for each in affected}
    for key, files in changed.items():
        old, new = (find_running(bundle, *key) for bundle in (before, after))
        if old is not None and new is not None:
            each = found.get(key) or AffectedProcess(key=key, old=old, new=new, reasons=())
            found[key] = replace(each, files=tuple(file.path for file in files), is_alike=False, is_earlier=False)
    return tuple(found[key] for key in sorted(found))


def load_pinned_work(connection: Connection, process: ProcessRecord, nominal_time: datetime, root: Path) -> PinnedWork:
    """Return the files of an instance of a process with the content that its release pins."""
    pinned = find_pinned_files(connection, parse_fingerprint(process.fingerprint).files)
    if pinned is None:
        return PinnedWork()
    project, stored = ProjectFiles(root=root), WorkflowFiles(connection)
    differing = [file for file in pinned.files if project.find(file.path) != file]
    changed = tuple(file.path for file in differing)
    found = {file.path: stored.find(file.digest) for file in differing if file.is_kept}
    contents = {path: content for path, content in found.items() if content is not None}
    for path in changed:
        _logger.warning(
            "process '%s': %s has changed since the release of %s. %s",
            process.process,
            path,
            render_datetime(nominal_time),
            _remedy(process, nominal_time)
            if path in contents
            else "It was too large to keep, and is used as it is now.",
        )
    return PinnedWork(contents=contents, changed=changed)


def _remedy(process: ProcessRecord, nominal_time: datetime) -> str:
    touch = command_line("entity", "touch", "process", process.process, effective_from=nominal_time)
    rerun = instance_command("rerun", process.process, nominal_time, process.cluster)
    return f"The release's own content is used. To run this instance with the present one: {touch} && {rerun}"
