"""Export entities to a bundle: definitions as they are written, files of workflows, metadata, and stable ids."""

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import UUID

from feed_assets.catalog.moving import export_metadata
from feed_assets.catalog.store import MetadataStore
from feed_assets.catalog.targets import RUN
from feed_assets.context.errors import BundleRefusedError
from feed_assets.context.operation import open_context
from feed_assets.definitions.bundles.archive import BundleArchive, BundledEntity, is_path_below, render_archive
from feed_assets.definitions.verbs.context import EntityContext, get_declared
from feed_assets.definitions.verbs.settling import settle_releases
from feed_assets.entities.bundle import Bundle
from feed_assets.entities.common import Kind, label_of
from feed_assets.entities.errors import EntityNotFoundError
from feed_assets.entities.graph import DependencyGraph
from feed_assets.entities.process import Process, iter_workflows
from feed_assets.issues import EntityKey
from feed_assets.json_form import Hidden, ShownKey, render_document
from feed_assets.validation.rules_workflow import iter_files


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleExport:
    """A bundle that was made. `left_out` are files that workflows name and that are not below the project's folder."""

    entities: tuple[ShownKey, ...]
    files: tuple[str, ...]
    left_out: tuple[str, ...]
    described: int
    content: Hidden[bytes]

    @property
    def lines(self) -> list[str]:
        """What is in it."""
        files = [f"file {path}" for path in self.files]
        return [*map(label_of, self.entities), *files, f"metadata of {self.described}"]

    @property
    def notes(self) -> list[str]:
        """What is not in it."""
        return [f"warning: {path} is left out: it is not below the project's folder" for path in self.left_out]


def export_bundle(context: EntityContext, names: Sequence[str], *, with_dependencies: bool = False) -> BundleExport:
    """Return a bundle of entities, by name or KIND/NAME; without names, of all of them and of all that is described.
    Entities that nobody has described yet are recorded, since they need an id.

    Raises:
        EntityNotFoundError: an entity is not declared in the files.
        DefinitionsError: one has errors; carries the issues.
        BundleRefusedError: a name is that of several entities.
    """
    loaded = context.load()
    bundle = loaded.bundle.bundle
    keys = _find_keys(bundle, names) if names else [entity.key for entity in bundle.entities]
    if with_dependencies:
        keys = sorted({*keys, *DependencyGraph.of(bundle).dependencies_of(keys)})
    entities = [get_declared(loaded, Kind(kind), name) for kind, name in keys]
    ids = _find_ids(context, keys)
    files, left_out = _read_files(context.settings.root, [each for each in entities if isinstance(each, Process)])
    paths = [f"{kind}/{name}" for kind, name in keys] if names else [None]
    operations = open_context(context.settings, context.database)
    mutations = [each for path in paths for each in export_metadata(operations, path)]
    described = [each for each in mutations if not each["entity"].startswith(f"{RUN}/")]
    bundled, texts = [], {}
    for key in keys:
        document = loaded.documents[key]
        each = BundledEntity(kind=Kind(key[0]), name=key[1], uid=ids[key], file="")
        each = each.model_copy(update={"file": each.place(f".{document.format.value}")})
        bundled.append(each)
        texts[each.file] = document.text.encode()
    said = json.dumps(render_document(mutations=described), indent=2, ensure_ascii=False)
    archive = BundleArchive(entities=tuple(bundled), texts=texts, files=files, metadata=f"{said}\n".encode())
    return BundleExport(
        entities=tuple(keys),
        files=tuple(sorted(files)),
        left_out=tuple(sorted(left_out)),
        described=len(described),
        content=render_archive(archive),
    )


def _find_keys(bundle: Bundle, names: Sequence[str]) -> list[EntityKey]:
    found: dict[EntityKey, None] = {}
    for text in names:
        kind, _, name = text.rpartition("/")
        keys = [each.key for each in bundle.entities if each.name == name and kind in ("", each.kind.value)]
        if not keys:
            suggestions = tuple(each for one in Kind if kind in ("", one.value) for each in bundle.suggest(one, name))
            raise EntityNotFoundError(kind=kind or "entity", name=name, suggestions=suggestions)
        if len(keys) > 1:
            written = " or ".join("/".join(key) for key in keys)
            reasons = [f"{len(keys)} entities have the name {name!r}"]
            raise BundleRefusedError(file="the bundle", reasons=reasons, next_step=f"Write {written}.")
        found[keys[0]] = None
    return list(found)


def _find_ids(context: EntityContext, keys: Collection[EntityKey]) -> dict[EntityKey, UUID]:
    """Return the ids of entities. Those that nobody has described are described first, as a tick would do it."""
    found = _read_ids(context, keys)
    if len(found) < len(keys):
        context = replace(context, dry_run=False)
        context.record()
        settle_releases(context)
        found = _read_ids(context, keys)
    missing = [f"{kind} {name!r}" for kind, name in keys if (kind, name) not in found]
    if missing:
        raise BundleRefusedError(
            file="the bundle",
            reasons=[f"there is no id of {', '.join(missing)}: the definitions have errors or are not recorded"],
            next_step="Correct or record them first.",
        )
    return found


def _read_ids(context: EntityContext, keys: Collection[EntityKey]) -> dict[EntityKey, UUID]:
    with context.database.read() as connection:
        ids = MetadataStore(connection).ids_of(f"{kind}/{name}" for kind, name in keys)
    return {key: UUID(ids["/".join(key)]) for key in keys if "/".join(key) in ids}


def _read_files(root: Path, processes: Sequence[Process]) -> tuple[dict[str, bytes], set[str]]:
    files, left_out = {}, set()
    for path in {path for process in processes for path in iter_paths(process)}:
        file = root / path
        if is_path_below(path) and file.is_file() and file.resolve().is_relative_to(root.resolve()):
            files[path] = file.read_bytes()
        else:
            left_out.add(path)
    return files, left_out


def iter_paths(process: Process) -> Iterator[str]:
    """Yield the paths and URLs that the workflows of a process name."""
    for _, workflow in iter_workflows(process):
        for _, path in iter_files(workflow):
            yield path
