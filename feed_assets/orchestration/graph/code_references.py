"""Link assets to what they are written in: the lines of entity files, functions, SQL files and applications.

Each is an absolute path, which Dagster's UI opens in an editor, and beside it a page on GitHub or GitLab where the file
belongs to a checkout of such a repository.
"""

import os
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from dagster import CodeReferencesMetadataValue, LocalFileCodeReference, UrlCodeReference

from feed_assets.engines.code_positions import CodeFinder
from feed_assets.masking import mask
from feed_assets.orchestration.graph.git_remotes import find_remote
from feed_assets.plan.entity_facts import EntityFacts
from feed_assets.plan.records import FeedRecord, ProcessRecord

CODE_REFERENCES = "dagster/code_references"


@dataclass(frozen=True)
class CodeReferences:
    """Finds the code references of a location's assets; reads each file and each checkout once."""

    finder: CodeFinder
    _folders: dict[str, Path] = field(default_factory=dict)

    @cached_property
    def pointer(self) -> str | None:
        """The option by which commands of Dagster find the definitions."""
        return find_pointer(self.finder.root)

    def of_feed(self, record: FeedRecord, made_by: ProcessRecord | None) -> dict[str, CodeReferencesMetadataValue]:
        """Return the metadata of a feed's asset: the feed, and what makes it."""
        maker = [] if made_by is None or made_by.copy is not None else [*self._iter_process(made_by)]
        return _metadata([*self._iter_entity(f"feed {record.feed}", record.facts), *maker])

    def of_process(self, process: ProcessRecord) -> dict[str, CodeReferencesMetadataValue]:
        """Return the metadata of an asset that is a process."""
        return _metadata(list(self._iter_process(process)))

    def _iter_process(self, process: ProcessRecord) -> Iterator[LocalFileCodeReference | UrlCodeReference]:
        kind, name = process.entity
        yield from self._iter_entity(f"{kind} {name}", process.facts)
        workflow = process.workflow
        if workflow is None or process.mirror is not None or (process.facts.file or "").endswith(".py"):
            return  # a function that declares its process is in the place of the declaration
        for _, part in workflow.parts():
            found = self.finder.find(part.engine.value, part.path)
            if found is not None:
                yield from self._iter_file(str(found.file), found.line, part.path)

    def _iter_entity(self, label: str, facts: EntityFacts) -> Iterator[LocalFileCodeReference | UrlCodeReference]:
        if facts.file is None:
            return
        if "://" not in facts.file:
            yield from self._iter_file(facts.file, facts.line, label)
        elif facts.file.startswith(("http://", "https://")):
            yield UrlCodeReference(url=mask(facts.file), label=label)

    def _iter_file(
        self, file: str, line: int | None, label: str
    ) -> Iterator[LocalFileCodeReference | UrlCodeReference]:
        path = os.path.abspath(file)  # noqa: PTH100 - one of many; without links resolved
        yield LocalFileCodeReference(file_path=path, line_number=line, label=label)
        folder, _, name = path.rpartition("/")
        place = self._folders.setdefault(folder, Path(folder))
        remote = find_remote(place)
        if remote is not None:
            yield UrlCodeReference(url=remote.url(place / name, line), label=label)


def _metadata(
    references: list[LocalFileCodeReference | UrlCodeReference],
) -> dict[str, CodeReferencesMetadataValue]:
    return {CODE_REFERENCES: CodeReferencesMetadataValue(code_references=references)} if references else {}


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
