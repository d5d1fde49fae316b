"""Adopt foreign content as an instance: the files stay as they are and get a manifest, as a publication has."""

from collections.abc import Mapping

from feed_assets.storage.copy_port import Prepared
from feed_assets.storage.errors import StorageError
from feed_assets.storage.manifests import with_hidden
from feed_assets.storage.paths import is_content
from feed_assets.storage.port import InstanceStore
from feed_assets.storage.records import Guard, Manifest, ManifestEntry


def adopt_content(
    store: InstanceStore, path: str, token: str, *, flag: str | None, guard: Guard, extra: Mapping[str, str]
) -> Manifest:
    """Publish the present content of a path as the instance, and return its manifest. Reads all of it.

    Raises:
        StorageError: it is a single file or a partition of a table, or keeps changing.
    """
    if not store.trash().takes_files or "" in store.standing_files(path):
        raise StorageError(
            store=store.root_url,
            path=path,
            reason="only a directory of files can be adopted",
            next_step="Write `existing: replace` in the declaration of the feed, or move it away.",
        )
    copying = store.copying()
    sizes = copying.standing(path).files
    content = store.manifest(path, flag)
    hidden = tuple(
        ManifestEntry(name, sizes[name], "") for name in sizes if name != flag and not is_content(name, flag)
    )
    staging = copying.staging(path, token)
    staging.open()
    staging.seal()
    try:
        staging.adopt([*(entry.path for entry in content.entries), *(entry.path for entry in hidden)])
        manifest = with_hidden(Manifest.of(content.entries, extra), hidden)
        staging.prepare(Prepared(manifest=manifest, flags=(flag,) if flag else (), hidden=hidden))
        copying.flush([staging])
        staging.publish(guard)
        copying.flush([staging])
        staging.remove()
    finally:
        staging.close()
    return manifest
