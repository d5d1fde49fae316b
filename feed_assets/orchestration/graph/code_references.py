"""Link assets to what they are written in: the lines of entity files, functions, SQL files and applications.

Each is an absolute path, which Dagster's UI opens in an editor, and beside it a page on GitHub or GitLab where the file
belongs to a checkout of such a repository: its remote is read from the files of the checkout, without Git and network.
"""

import os
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import dagster as dg

from feed_assets.engines.workflow.python_code import PythonFiles, find_code
from feed_assets.entities.workflow import Workflow
from feed_assets.masking import mask
from feed_assets.plan.facts import EntityFacts
from feed_assets.plan.records import FeedRecord, ProcessRecord

CODE_REFERENCES = "dagster/code_references"
_SECTION = re.compile(r"^(?=[ \t]*\[)", re.MULTILINE)
_REMOTE = re.compile(r'[ \t]*\[remote "(.*)"\]')  # [remote "origin"]
_URL = re.compile(r"^[ \t]*url[ \t]*=[ \t]*(\S+)", re.MULTILINE)  # url = git@github.com:team/project.git
_SHORT = re.compile(r"^(?:[^@/]+@)?([^:/]+):(?!//)(.+)$")  # git@github.com:team/project.git
_BRANCH = "ref: refs/heads/"
_DEFAULT_BRANCH = "HEAD"


@dataclass(frozen=True)
class CodeReferences:
    """Finds the code references of a location's assets; reads each file and each checkout once."""

    files: PythonFiles
    _folders: dict[str, Path] = field(default_factory=dict)

    @cached_property
    def pointer(self) -> str | None:
        """The option by which commands of Dagster find the definitions."""
        return find_pointer(self.files.root)

    def of_feed(self, record: FeedRecord, made_by: ProcessRecord | None) -> dict[str, dg.CodeReferencesMetadataValue]:
        """Return the metadata of a feed's asset: the feed, and what makes it."""
        maker = [] if made_by is None or made_by.is_of_feed else [*self._iter_process(made_by)]
        return _metadata([*self._iter_entity(f"feed {record.feed}", record.facts), *maker])

    def of_process(self, process: ProcessRecord) -> dict[str, dg.CodeReferencesMetadataValue]:
        """Return the metadata of an asset that is a process."""
        return _metadata(list(self._iter_process(process)))

    def _iter_process(self, process: ProcessRecord) -> Iterator[dg.LocalFileCodeReference | dg.UrlCodeReference]:
        kind, name = process.entity
        yield from self._iter_entity(f"{kind} {name}", process.facts)
        if not isinstance(process.work, Workflow) or (process.facts.file or "").endswith(".py"):
            return  # a function that declares its process is in the place of the declaration
        for _, part in process.work.parts():
            found = find_code(part.engine.value, part.path, self.files)
            if found is not None:
                yield from self._iter_file(str(found.file), found.line, part.path)

    def _iter_entity(self, label: str, facts: EntityFacts) -> Iterator[dg.LocalFileCodeReference | dg.UrlCodeReference]:
        if facts.file is None:
            return
        if "://" not in facts.file:
            yield from self._iter_file(facts.file, facts.line, label)
        elif facts.file.startswith(("http://", "https://")):
            yield dg.UrlCodeReference(url=mask(facts.file), label=label)

    def _iter_file(
        self, file: str, line: int | None, label: str
    ) -> Iterator[dg.LocalFileCodeReference | dg.UrlCodeReference]:
        path = os.path.abspath(file)  # noqa: PTH100 - one of many; without links resolved
        yield dg.LocalFileCodeReference(file_path=path, line_number=line, label=label)
        folder, _, name = path.rpartition("/")
        place = self._folders.setdefault(folder, Path(folder))
        remote = find_remote(place)
        if remote is not None:
            yield dg.UrlCodeReference(url=remote.url(place / name, line), label=label)


def _metadata(
    references: list[dg.LocalFileCodeReference | dg.UrlCodeReference],
) -> dict[str, dg.CodeReferencesMetadataValue]:
    return {CODE_REFERENCES: dg.CodeReferencesMetadataValue(code_references=references)} if references else {}


def find_pointer(root: Path) -> str | None:
    """Return the option by which commands of Dagster find the definitions of a project; None if nothing tells it.

    A `definitions.py` in the folder comes first, then the module of `[tool.dagster]`, then that of a `dg` project.
    """
    if (root / "definitions.py").is_file():
        return "-f definitions.py"
    try:
        tools: dict[str, Any] = tomllib.loads((root / "pyproject.toml").read_text("utf-8")).get("tool", {})
    except (OSError, ValueError):
        return None
    module = tools.get("dagster", {}).get("module_name")
    package = tools.get("dg", {}).get("project", {}).get("root_module")
    if module is None and package is not None:
        module = f"{package}.definitions"
    return None if module is None else f"-m {module}"


@dataclass(frozen=True, slots=True, kw_only=True)
class GitRemote:
    """A checkout whose remote has pages for files. `pages` is the URL of the page of `folder` itself."""

    folder: Path
    pages: str

    def url(self, file: Path, line: int | None) -> str:
        """Return the URL of the page of a file of the checkout."""
        below = quote(file.relative_to(self.folder).as_posix())
        return f"{self.pages}/{below}" + ("" if line is None else f"#L{line}")


@lru_cache(maxsize=4096)
def find_remote(folder: Path) -> GitRemote | None:
    """Return the remote of the checkout that a folder is in; None without one, or if it is neither GitHub nor GitLab.

    Pages are those of the branch that is checked out, if the remote has it, else of its default branch; of a commit
    that is checked out without a branch, those of the commit. Installed packages are not files of a checkout.
    """
    if folder.name == "site-packages":
        return None
    git = folder / ".git"
    if not git.exists():
        return find_remote(folder.parent) if folder != folder.parent else None
    try:
        return _read_remote(folder, git)
    except (OSError, UnicodeDecodeError):
        return None


def _read_remote(folder: Path, git: Path) -> GitRemote | None:
    if git.is_file():  # of a worktree or a submodule: gitdir: ../.git/worktrees/one
        git = folder / git.read_text("utf-8").removeprefix("gitdir:").strip()
    common = git / "commondir"
    shared = git / common.read_text("utf-8").strip() if common.is_file() else git
    remotes = _read_urls((shared / "config").read_text("utf-8"))
    name = "origin" if "origin" in remotes else next(iter(remotes), None)
    address = None if name is None else find_web_address(remotes[name])
    if address is None or name is None:
        return None
    platform = "/-/blob" if "gitlab" in address else "/blob"
    return GitRemote(folder=folder, pages=f"{address}{platform}/{quote(_read_revision(git, shared, name))}")


def _read_urls(config: str) -> dict[str, str]:
    """Return the URLs of the remotes in a configuration of Git, by the names of the remotes."""
    found: dict[str, str] = {}
    for section in _SECTION.split(config):
        if (remote := _REMOTE.match(section)) is not None and (url := _URL.search(section)) is not None:
            found.setdefault(remote[1], url[1])  # Git fetches from the first, and pushes to all
    return found


def _read_revision(git: Path, shared: Path, remote: str) -> str:
    head = (git / "HEAD").read_text("utf-8").strip()
    if not head.startswith(_BRANCH):
        return head
    branch = head.removeprefix(_BRANCH)
    known = f"refs/remotes/{remote}/{branch}"
    packed = shared / "packed-refs"
    is_known = (shared / known).is_file() or (packed.is_file() and f" {known}\n" in packed.read_text("utf-8"))
    return branch if is_known else _DEFAULT_BRANCH


def find_web_address(url: str) -> str | None:
    """Return the address of a repository's pages for the URL from which it is fetched, without credentials.

    None if it is neither on GitHub nor on GitLab.

    >>> find_web_address("git@github.com:team/project.git"), find_web_address("https://me:secret@gitlab.com/a/b")
    ('https://github.com/team/project', 'https://gitlab.com/a/b')
    """
    if "://" in url:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port and parts.scheme in {"http", "https"} else ""
        host, path = f"{parts.hostname or ''}{port}", parts.path
    elif (short := _SHORT.match(url)) is not None:
        host, path = short[1], short[2]
    else:
        return None
    if "github" not in host and "gitlab" not in host:
        return None
    return f"https://{host}/{path.strip('/').removesuffix('.git')}"
