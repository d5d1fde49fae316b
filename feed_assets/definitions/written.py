"""Digest and read documents as written: references to outside values stay references.

The record of definitions is about what people write. A rotated secret, or a folder with another name on another
machine, makes no new version, and no secret of the environment gets into the record.
"""

import hashlib

from feed_assets.entities.bundle import AnyEntity, entity_digest
from feed_assets.entities.common import Kind
from feed_assets.loading.entity_documents import iter_entities
from feed_assets.loading.interpolation import Values
from feed_assets.log.definitions.records import DefinitionVersion, DocumentFormat


def digest_as_written(entity: AnyEntity, text: str, format: DocumentFormat) -> str:  # noqa: A002
    """Return the sha256 of a document in hexadecimal, independent of the values of its references.

    Without references, this is the digest of the entity. `text` is the document that `entity` was read from.
    """
    if not has_references(entity.key[0], text):
        return entity_digest(entity)
    written = find_entity(text, format)
    if written is None:  # valid only with its values: "storage: ${STORAGE}"
        return hashlib.sha256(f"as written\0{text}".encode()).hexdigest()
    return entity_digest(written)


def has_references(kind: str, text: str) -> bool:
    """Return whether a document of this kind may refer to outside values."""
    return "${env:" in text or (kind == Kind.CLUSTER and "${" in text)


def find_entity(text: str, format: DocumentFormat, values: Values | None = None) -> AnyEntity | None:  # noqa: A002
    """Return the entity of one document; None if it cannot be read. Without `values`, references stay as written."""
    documents = list(iter_entities(f"definition.{format.value}", text, values))
    return documents[0].entity if len(documents) == 1 else None


def find_version_entity(version: DefinitionVersion, values: Values | None = None) -> AnyEntity | None:
    """Return the entity of a version: as written, or with the values of its references if `values` are given.

    None for a deletion, and if this release or these values cannot read it.
    """
    return None if version.text is None else find_entity(version.text, version.format, values)
