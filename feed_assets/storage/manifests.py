"""Read and write manifest files, and compute manifest entries from streams of bytes."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, BinaryIO, Self

from pydantic_core import PydanticSerializationError, from_json, to_json

from feed_assets.errors import describe_error
from feed_assets.storage.checksums import Checksum
from feed_assets.storage.errors import ManifestError
from feed_assets.storage.records import Extra, Manifest, ManifestEntry, content_digest

VERSION = 1
HIDDEN = "hidden"
"""The field of a manifest for the entries of hidden files."""
FOREIGN = "foreign"
"""The field of an entry that marks a file as not written by us: a copy has found it in its target, and has kept it."""
_ENTRIES = b',"entries":['  # never inside a JSON string, where its quotes would be escaped
_FIELDS = frozenset({"version", "digest", "bytes", "files", "extra", "entries"})
_ENTRY_FIELDS = frozenset({"path", "size", "checksum"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """The head of a published manifest, without its entries; see `Manifest`."""

    digest: str
    bytes: int
    files: int
    extra: Extra

    @classmethod
    def of(cls, manifest: Manifest) -> Self:
        """Return the head of a manifest."""
        return cls(digest=manifest.digest, bytes=manifest.bytes, files=manifest.files, extra=manifest.extra)


def read_entry(path: str, chunks: Iterable[bytes | memoryview], copy: BinaryIO | None = None) -> ManifestEntry:
    """Read the chunks of a file and return its manifest entry; write every chunk to `copy`."""
    checksum = Checksum()
    size = 0
    for chunk in chunks:
        checksum.update(chunk)
        size += len(chunk)
        if copy is not None:
            copy.write(chunk)
    return ManifestEntry(path=path, size=size, checksum=checksum.render())


def render_entry(entry: ManifestEntry) -> dict[str, object]:
    """Return an entry as the JSON object of a manifest file."""
    return {"path": entry.path, "size": entry.size, "checksum": entry.checksum, **entry.unknown}


def render_json(value: object) -> bytes:
    """Render dicts, lists, strings and numbers as JSON in UTF-8 without spaces; faster than `json.dumps`.

    >>> render_json([{"path": "a.csv"}, 1])
    b'[{"path":"a.csv"},1]'
    """
    try:
        return to_json(value)
    except PydanticSerializationError:  # a file name that is not valid UTF-8
        return json.dumps(value, separators=(",", ":")).encode()


def parse_json(text: str | bytes) -> Any:
    """Parse JSON; faster than `json.loads`. Raises `ValueError` for anything else.

    >>> parse_json(b'{"path":"\\\\udcff"}') == json.loads(b'{"path":"\\\\udcff"}')
    True
    """
    try:
        return from_json(text)
    except ValueError:  # a file name that is not valid UTF-8
        return json.loads(text)


def render_manifest(manifest: Manifest) -> bytes:
    """Render a manifest as one JSON object; unknown fields are kept at their level."""
    return render_json(
        {
            "version": manifest.version,
            "digest": manifest.digest,
            "bytes": manifest.bytes,
            "files": manifest.files,
            "extra": dict(manifest.extra),
            **manifest.unknown,
            "entries": [render_entry(entry) for entry in manifest.entries],
        }
    )


def parse_manifest(text: str | bytes, *, store: str, path: str) -> Manifest:
    """Parse the text of `render_manifest`. Raises `ManifestError` if it is damaged or has an unknown version.

    >>> text = '{"version":1,"digest":"%s","bytes":0,"files":0,"extra":{},"entries":[],"zone":"EU"}'
    >>> text %= "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    >>> parse_manifest(text, store="file:///data", path="weather/2013").unknown
    {'zone': 'EU'}
    """
    try:
        document = parse_json(text)
        version = document["version"]
        if version != VERSION:
            reason = f"it has version {version}, this program reads {VERSION}"
            raise ManifestError(store=store, path=path, reason=reason)
        manifest = Manifest(
            entries=tuple(_parse_entry(entry) for entry in document["entries"]),
            digest=str(document["digest"]),
            bytes=int(document["bytes"]),
            files=int(document["files"]),
            extra={str(name): str(value) for name, value in document["extra"].items()},
            unknown=_without(document, _FIELDS),
        )
        digest = content_digest(manifest.entries)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as exc:
        raise ManifestError(store=store, path=path, reason=f"it is damaged ({describe_error(exc)})") from exc
    if digest != manifest.digest:
        raise ManifestError(store=store, path=path, reason="its digest does not fit its entries")
    return manifest


def with_hidden(manifest: Manifest, hidden: Iterable[ManifestEntry]) -> Manifest:
    """Return a manifest that also names hidden files; see `hidden_entries`."""
    entries = [render_entry(each) for each in hidden]
    return replace(manifest, unknown={**manifest.unknown, HIDDEN: entries}) if entries else manifest


def hidden_entries(manifest: Manifest) -> list[ManifestEntry]:
    """Return the entries of hidden files; they are not content and not part of the digest."""
    found = manifest.unknown.get(HIDDEN)
    return [_parse_entry(each) for each in found] if isinstance(found, list) else []


def parse_head(text: bytes) -> Publication | None:
    """Parse the head of a manifest from its first bytes; return None if they are too few or damaged.

    >>> parse_head(b'{"version":1,"digest":"sha256:e3","bytes":0,"files":0,"extra":{"run":"7"},"entries":[{"path":"a')
    Publication(digest='sha256:e3', bytes=0, files=0, extra={'run': '7'})
    """
    head, found, _ = text.partition(_ENTRIES)
    if not found:
        return None
    try:
        document = parse_json(head + b"}")
        if document["version"] != VERSION:
            return None
        return Publication(
            digest=str(document["digest"]),
            bytes=int(document["bytes"]),
            files=int(document["files"]),
            extra={str(name): str(value) for name, value in document["extra"].items()},
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _parse_entry(entry: Mapping[str, object]) -> ManifestEntry:
    size = entry["size"]
    if not isinstance(size, int):
        raise TypeError(f"size {size!r}")
    return ManifestEntry(
        path=str(entry["path"]),
        size=size,
        checksum=str(entry["checksum"]),
        unknown=_without(entry, _ENTRY_FIELDS),
    )


def _without(fields: Mapping[str, object], known: frozenset[str]) -> dict[str, object]:
    return {name: value for name, value in fields.items() if name not in known}
