"""The file of a bundle: an uncompressed zip of texts, the same bytes for the same content.

`bundle.json` lists the entities with their ids, `entities/<kind>/<name>.yaml` has each definition as it is written,
`files/` what their workflows name, and `metadata.json` what people say of them, as `metadata export` prints it.
"""

import io
import json
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Annotated
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from feed_assets.context.errors import BundleRefusedError
from feed_assets.entities.common import Kind
from feed_assets.entities.fields import Name
from feed_assets.issues import EntityKey
from feed_assets.json_form import parse_json

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


def read_archive(path: Path) -> BundleArchive:
    """Read a bundle. Nothing in it is trusted: neither names and paths nor sizes.

    Raises:
        BundleRefusedError: it is no bundle, has an unknown version, is too big, or has a file that does not belong to
            it.
    """
    if path.stat().st_size > MOST_BYTES:
        raise _refusal(path, f"it has more than {MOST_BYTES >> 20} MiB", "Export fewer entities.")
    try:
        with zipfile.ZipFile(path) as file:
            parts = _read_parts(path, file)
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError) as exc:
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


def _read_parts(path: Path, file: zipfile.ZipFile) -> dict[str, bytes]:
    infos = file.infolist()
    if len(infos) > MOST_FILES or sum(each.file_size for each in infos) > MOST_BYTES:
        limits = f"{MOST_FILES:,} files or {MOST_BYTES >> 20} MiB"
        raise _refusal(path, f"it has more than {limits}", "Export fewer entities.")
    if len({each.filename for each in infos}) < len(infos):
        raise _refusal(path, "a part stands in it twice", _REMEDY)
    if any(each.flag_bits & _ENCRYPTED for each in infos):
        raise _refusal(path, "it is encrypted", "Decrypt it first.")
    return {each.filename: file.read(each) for each in infos if not each.is_dir()}


def _read_index(path: Path, text: bytes | None) -> _Index:
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


def _refusal(path: Path, reason: str, next_step: str) -> BundleRefusedError:
    return BundleRefusedError(file=str(path), reasons=[reason], next_step=next_step)
