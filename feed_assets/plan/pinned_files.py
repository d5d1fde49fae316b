"""Pinned files: the files of workflows whose content belongs to a release, so that an instance runs with its own again.

Pinned are SQL files, Python files that are named as `file.py:function`, and the application and libraries of
spark-submit, as far as they lie below the project's folder. Modules of Python and files at URLs are not.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit

from feed_assets.entities.workflow import Workflow, WorkflowEngine
from feed_assets.plan.edges import Key
from feed_assets.plan.records import Plan, ProcessRecord
from feed_assets.plan.release_fingerprint import parse_fingerprint

KEPT_BYTES = 4 * 1024**2
"""The size up to which the content of a file is kept; of a larger file only the digest is."""

_VERSION = 1
_DIGEST_LENGTH = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedFile:
    """The content of a file by its SHA-256; `path` is as the workflow names it."""

    path: str
    digest: str
    is_kept: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedFiles:
    """The pinned files of a process. `digest` identifies them all, and stands in the fingerprint of a release."""

    files: tuple[PinnedFile, ...]

    @property
    def digest(self) -> str:
        content = json.dumps([_VERSION, [[file.path, file.digest] for file in self.files]])
        return hashlib.sha256(content.encode()).hexdigest()[:_DIGEST_LENGTH]

    def render(self) -> str:
        """Render them as JSON, to be stored under their digest."""
        entries = [[file.path, file.digest, file.is_kept] for file in self.files]
        return json.dumps({"version": _VERSION, "files": entries}, separators=(",", ":"))

    def unlike(self, others: "PinnedFiles") -> tuple[PinnedFile, ...]:
        """Return the files whose content differs in `others`."""
        known = {file.path: file.digest for file in others.files}
        return tuple(file for file in self.files if known.get(file.path, file.digest) != file.digest)


def parse_pinned_files(text: str) -> PinnedFiles:
    """Parse what `PinnedFiles.render` rendered."""
    files = (PinnedFile(path=path, digest=digest, is_kept=kept) for path, digest, kept in json.loads(text)["files"])
    return PinnedFiles(files=tuple(files))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectFiles:
    """Reads the files of workflows below the project's folder, each one once."""

    root: Path
    _found: dict[str, PinnedFile | None] = field(default_factory=dict)

    def read(self, workflows: Iterable[Workflow]) -> PinnedFiles | None:
        """Return the pinned files of workflows as they are now; None if there are none, or one cannot be read."""
        paths = sorted({path for workflow in workflows for path in _pinned_paths(workflow)})
        files = [self.find(path) for path in paths]
        found = tuple(file for file in files if file is not None)
        return PinnedFiles(files=found) if found and len(found) == len(files) else None

    def find(self, path: str) -> PinnedFile | None:
        """Return a file as it is now; None if it cannot be read."""
        if path not in self._found:
            self._found[path] = self._read(path)
        return self._found[path]

    def _read(self, path: str) -> PinnedFile | None:
        try:
            with (self.root / path).open("rb") as stream:
                digest = hashlib.file_digest(stream, "sha256").hexdigest()
                return PinnedFile(path=path, digest=digest, is_kept=stream.tell() <= KEPT_BYTES)
        except OSError:
            return None


def with_pinned_files(plan: Plan, root: Path) -> Plan:
    """Return the plan with the present content of its workflow files in the fingerprints and in its digest."""
    project = ProjectFiles(root=root)
    read = {key: project.read(workflows_of(record)) for key, record in plan.processes.items()}
    pinned = {key: files.digest for key, files in read.items() if files is not None}
    if not pinned:
        return plan
    content = json.dumps([plan.digest, sorted([*key, digest] for key, digest in pinned.items())])
    return replace(
        plan,
        digest=hashlib.sha256(content.encode()).hexdigest()[: len(plan.digest)],
        processes={key: with_pinned_digest(record, pinned.get(key, "")) for key, record in plan.processes.items()},
    )


def with_pinned_digest(record: ProcessRecord, digest: str) -> ProcessRecord:
    """Return the record of a process with certain pinned files."""
    fingerprint = parse_fingerprint(record.fingerprint)
    if fingerprint.files == digest:
        return record
    return replace(record, fingerprint=replace(fingerprint, files=digest).render())


def pinned_digests(plan: Plan) -> Mapping[Key, str]:
    """Return the digest of the pinned files of each process that has any."""
    found = ((key, parse_fingerprint(record.fingerprint).files) for key, record in plan.processes.items())
    return {key: digest for key, digest in found if digest}


def workflows_of(record: ProcessRecord) -> tuple[Workflow, ...]:
    """Return the workflows of a process; instead of one with steps, those of its steps."""
    return tuple(part for workflow in record.workflows for _, part in workflow.parts())


def _pinned_paths(workflow: Workflow) -> list[str]:
    match workflow.engine:
        case WorkflowEngine.SQL:
            paths = [workflow.path]
        case WorkflowEngine.SPARK_SUBMIT:
            paths = [workflow.path, *workflow.lib]
        case WorkflowEngine.PYTHON if ".py:" in workflow.path:
            paths = [workflow.path.rpartition(":")[0]]
        case _:
            paths = []
    return [path for path in paths if len(urlsplit(path).scheme) <= 1]
