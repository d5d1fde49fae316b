"""The file of a bundle: an uncompressed zip of texts, the same bytes for the same content.

`bundle.json` lists the entities with their ids, `entities/<kind>/<name>.yaml` has each definition as it is written,
`files/` what their workflows name, and `metadata.json` what people say of them, as `metadata export` prints it.
"""

import io
import json
import zipfile
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Annotated
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from feed_assets.catalog.documents import export_metadata
from feed_assets.catalog.store import MetadataStore
from feed_assets.catalog.targets import RUN
from feed_assets.context.errors import BundleRefusedError
from feed_assets.context.operation import open_context
from feed_assets.definitions.verbs.context import EntityContext, get_declared
from feed_assets.definitions.verbs.schedules import settle_releases
from feed_assets.entities.bundle import Bundle
from feed_assets.entities.common import Kind, label_of
from feed_assets.entities.errors import EntityNotFoundError
from feed_assets.entities.fields import Name
from feed_assets.entities.graph import DependencyGraph
from feed_assets.entities.process import Process, iter_workflows
from feed_assets.errors import Fault
from feed_assets.issues import EntityKey
from feed_assets.json_form import Hidden, ShownKey, parse_json, render_document
from feed_assets.validation.processes.process import iter_files

ZIP_ERRORS = (zipfile.BadZipFile, zlib.error, RuntimeError, EOFError, ValueError, IndexError, OverflowError)
"""What reading a zip in memory raises for any bytes, if `require_plain` has seen its parts."""
VERSION = 1
MOST_BYTES = 256 * 1024**2
MOST_FILES = 20_000

_INDEX = "bundle.json"
_METADATA = "metadata.json"
_FILES = "files/"
_UNTIMED = (1980, 1, 1, 0, 0, 0)
_RIGHTS = 0o644 << 16
_UNIX = 3
_ENCRYPTED = 1
_PACKED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_REMEDY = "Export it again."


class BundledEntity(BaseModel):
    """An entity of a bundle: its id, which is the same in every location, and the file of its definition."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Kind
    name: Name
    uid: UUID
    file: Annotated[str, Field(max_length=1_000)]

    @property
    def key(self) -> EntityKey:
        """The kind and the name."""
        return (self.kind.value, self.name)

    def place(self, suffix: str) -> str:
        """Return where a bundle has the definition."""
        return f"entities/{self.kind.value}/{self.name}{suffix}"


class _Index(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    version: int
    entities: tuple[BundledEntity, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleArchive:
    """A bundle: `texts` are the definitions by their files, `files` those of workflows by their paths in the project,
    and `metadata` is a document of `metadata import`.
    """

    entities: tuple[BundledEntity, ...]
    texts: Mapping[str, bytes] = field(repr=False)
    files: Mapping[str, bytes] = field(repr=False)
    metadata: bytes = field(repr=False)


def render_archive(archive: BundleArchive) -> bytes:
    """Return the bytes of a bundle."""
    ordered = sorted(archive.entities, key=lambda each: each.file)
    index = _Index(version=VERSION, entities=tuple(ordered)).model_dump(mode="json")
    parts = {_INDEX: _render_json(index), _METADATA: archive.metadata}
    parts |= {name: archive.texts[name] for name in sorted(archive.texts)}
    parts |= {f"{_FILES}{path}": archive.files[path] for path in sorted(archive.files)}
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_STORED) as file:
        for name, part in parts.items():
            info = zipfile.ZipInfo(name, _UNTIMED)
            info.create_system, info.external_attr = _UNIX, _RIGHTS
            file.writestr(info, part)
    return content.getvalue()


def read_archive(content: bytes, path: str) -> BundleArchive:
    """Read a bundle, the content of a file. Nothing in it is trusted: neither names and paths nor sizes.

    Raises:
        BundleRefusedError: it is no bundle, has an unknown version, is too big, or has a file that does not belong to
            it.
    """
    if len(content) > MOST_BYTES:
        raise _refusal(path, f"it has more than {MOST_BYTES >> 20} MiB", "Export fewer entities.")
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as file:
            parts = _read_parts(path, file)
    except ZIP_ERRORS as exc:
        raise _refusal(path, f"it is no bundle: {exc}", "Name a file that bundle export has written.") from exc
    index = _read_index(path, parts.pop(_INDEX, None))
    metadata = parts.pop(_METADATA, None)
    texts = {each.file: parts.pop(each.file, None) for each in index.entities}
    if metadata is None or None in texts.values():
        raise _refusal(path, "a part of it is missing", _REMEDY)
    files = {}
    for name, part in parts.items():
        if not name.startswith(_FILES) or not is_path_below(name.removeprefix(_FILES)):
            raise _refusal(path, f"it has a part that does not belong to it: {name!r}", _REMEDY)
        files[name.removeprefix(_FILES)] = part
    return BundleArchive(
        entities=index.entities,
        texts={name: text for name, text in texts.items() if text is not None},
        files=files,
        metadata=metadata,
    )


def require_plain(infos: Iterable[zipfile.ZipInfo]) -> None:
    """Raise BadZipFile if a part of a zip is encrypted, or packed in a way that may take any memory to unpack."""
    if any(each.flag_bits & _ENCRYPTED or each.compress_type not in _PACKED for each in infos):
        raise zipfile.BadZipFile("it is encrypted, or not packed by deflate")


def is_path_below(text: str) -> bool:
    """Return whether a text is a plain path of a file below a folder, with nothing hidden.

    >>> is_path_below("sql/count.sql"), is_path_below("../count.sql"), is_path_below("/etc/count.sql")
    (True, False, False)
    """
    parts = PurePosixPath(text).parts
    return (
        text == "/".join(parts)
        and text.isprintable()
        and not any(each.startswith(".") or "\\" in each or ":" in each for each in parts)
        and bool(parts)
        and not text.startswith("/")
    )


def _read_parts(path: str, file: zipfile.ZipFile) -> dict[str, bytes]:
    infos = file.infolist()
    if len(infos) > MOST_FILES or sum(each.file_size for each in infos) > MOST_BYTES:
        limits = f"{MOST_FILES:,} files or {MOST_BYTES >> 20} MiB"
        raise _refusal(path, f"it has more than {limits}", "Export fewer entities.")
    if len({each.filename for each in infos}) < len(infos):
        raise _refusal(path, "a part stands in it twice", _REMEDY)
    require_plain(infos)
    return {each.filename: file.read(each) for each in infos if not each.is_dir()}


def _read_index(path: str, text: bytes | None) -> _Index:
    if text is None:
        raise _refusal(path, f"it is no bundle: it has no {_INDEX}", "Name a file that bundle export has written.")
    try:
        content = parse_json(text)
        version = content.get("version") if isinstance(content, dict) else None
        if version != VERSION:
            remedy = "Import it with the release that has exported it."
            raise _refusal(path, f"it has version {version}, and this program reads {VERSION}", remedy)
        index = _Index.model_validate(content)
    except (ValueError, ValidationError) as exc:
        reason = str(exc).partition("\n")[0]
        raise _refusal(path, f"its {_INDEX} cannot be read: {reason}", _REMEDY) from exc
    for each in index.entities:
        if each.file not in (each.place(".yaml"), each.place(".xml")):
            raise _refusal(path, f"the definition of {each.kind.value} {each.name!r} is in another place", _REMEDY)
    keys, ids = {each.key for each in index.entities}, {each.uid for each in index.entities}
    if min(len(keys), len(ids)) < len(index.entities):
        raise _refusal(path, "an entity or an id stands in it twice", _REMEDY)
    return index


def _render_json(content: object) -> bytes:
    return f"{json.dumps(content, indent=2, ensure_ascii=False)}\n".encode()


def _refusal(path: str, reason: str, next_step: str) -> BundleRefusedError:
    return BundleRefusedError(file=path, reasons=[reason], next_step=next_step, fault=Fault.CONTENT)


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
    said = _render_json(render_document(mutations=described))
    archive = BundleArchive(entities=tuple(bundled), texts=texts, files=files, metadata=said)
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
