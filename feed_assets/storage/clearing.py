"""Clear the place of a publication, for runs and copies alike: no publication removes what is not ours.

Foreign content, which no record and no manifest knows, is refused unless somebody has decided to adopt it (it stays as
it is, and gets a manifest) or to replace it. Files that the last manifest in the place does not name go to the trash
before the new content becomes visible.
"""

from collections.abc import Collection

from feed_assets.entities.copies.options import Existing
from feed_assets.masking import encodable
from feed_assets.storage.copy_port import Prepared
from feed_assets.storage.errors import (
    ForeignContentError,
    ManifestError,
    PathRefusedError,
    StorageError,
)
from feed_assets.storage.manifests import FOREIGN, hidden_entries, with_hidden
from feed_assets.storage.paths import MANIFEST_NAME, PUBLISHING_NAME, is_content
from feed_assets.storage.port import InstanceStore
from feed_assets.storage.records import Clearing, Displaced, Extra, Guard, Manifest, ManifestEntry, Outcome

_FLAG = "_SUCCESS"
_GONE = frozenset({Outcome.MOVED, Outcome.ALREADY, Outcome.VANISHED})


def find_foreign(store: InstanceStore, path: str) -> tuple[str, ...]:
    """Return the files in a place where we have never published; empty if there are none, or if a manifest is there.

    Raises `StorageError` if what is there cannot be listed.
    """
    names = _list(store, path)
    return () if not names or {MANIFEST_NAME, PUBLISHING_NAME} & set(names) else names


def refuse_foreign(store: InstanceStore, path: str, names: Collection[str], clearing: Clearing) -> None:
    """Refuse foreign content unless the record knows the instance, or somebody has decided about it.

    Raises:
        ForeignContentError: there are `names`, and nothing decides about them.
    """
    if names and not clearing.is_known and clearing.existing is Existing.REFUSE:
        raise ForeignContentError(store=store.root_url, path=path, files=tuple(sorted(names)))


def refuse_unreadable(
    store: InstanceStore, path: str, names: Collection[str], flag: str | None, *, reads_folders: bool
) -> None:
    """Refuse to adopt content that no reader of the feed sees.

    Raises:
        StorageError: a name is not UTF-8, or a file is in a folder that is not read.
    """
    for name in sorted(each for each in names if is_content(each, flag)):
        is_below = not reads_folders and any("=" not in folder for folder in name.split("/")[:-1])
        if not is_below and encodable(name) == name:
            continue
        why = "files in folders are read only of a feed that declares `partitions`" if is_below else "it is not UTF-8"
        raise StorageError(
            store=store.root_url,
            path=path,
            reason=f"{encodable(name)!r} cannot be adopted: {why}",
            next_step="Nothing was changed. Rename or move it, or write `existing: replace` for the feed.",
        )


def clear_place(
    store: InstanceStore, path: str, flag: str | None, clearing: Clearing, keeps: Collection[str] = ()
) -> Displaced | None:
    """Move to the trash what a publication would remove although the last manifest does not name it as ours; what it
    names is kept before, if `clearing` says so.

    Call it directly before new content becomes visible. A repeat finds nothing left to do. Returns what has gone.

    Args:
        store: the store of the instance.
        path: the instance.
        flag: its availability flag.
        clearing: the decision about foreign content, and the name of the removal.
        keeps: the files that the new content takes over unchanged.

    Raises:
        ForeignContentError: the content is foreign, and nothing decides about it.
        StorageError: the trash does not take something; nothing may be published then.
    """
    names = set(_list(store, path)) - {MANIFEST_NAME}
    if not names:
        return None
    is_ours, manifest = PUBLISHING_NAME in names, None
    try:
        manifest = store.published_manifest(path)
    except ManifestError:
        is_ours = True
    if manifest is not None:
        is_ours = True
        if clearing.keep is not None:
            clearing.keep(manifest)
    names.discard(PUBLISHING_NAME)
    if not is_ours:
        refuse_foreign(store, path, names, clearing)
    entries = (*manifest.entries, *hidden_entries(manifest)) if manifest else ()
    named = {each.path for each in entries if not each.unknown.get(FOREIGN)}
    has_flags = is_ours and clearing.has_flags
    unnamed = tuple(sorted(each for each in names - named - set(keeps) if not (has_flags and _is_flag(each, flag))))
    if not unnamed:
        return None
    is_whole = "" in names or not store.trash().takes_files or not (is_ours or keeps)
    paths = (path,) if is_whole else tuple(f"{path}/{name}" for name in unnamed)
    displaced = Displaced(sweep=clearing.sweep, store=store.root_url, path=path, paths=paths, files=len(unnamed))
    clearing.announce(displaced)
    trash = store.trash()
    trash.describe(clearing.sweep, displaced.describe())
    for moved in trash.put(clearing.sweep, paths, flag=flag if is_whole else None):
        if moved.outcome not in _GONE:
            raise _in_the_way(store, moved.path, f"it cannot go to the trash: {moved.reason}")
    return displaced


def clearing_guard(
    store: InstanceStore, path: str, token: str, flag: str | None, guard: Guard, clearing: Clearing | None
) -> Guard:
    """Return a guard that also clears the place of the staging (path, token); see `clear_place`.

    Without a `clearing`, foreign content is refused.
    """
    rules = clearing or Clearing(sweep=f"published-{token}")

    def clear() -> None:
        guard()
        clear_place(store, path, flag, rules)
        if rules.keep is not None:  # which may have taken long
            guard()

    return clear


def adopt_content(
    store: InstanceStore, path: str, token: str, *, flag: str | None, guard: Guard, extra: Extra
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
    sizes = store.standing(path).files
    content = store.manifest(path, flag)
    hidden = tuple(
        ManifestEntry(name, sizes[name], "") for name in sizes if name != flag and not is_content(name, flag)
    )
    staging = store.staging(path, token)
    staging.seal(staging.open())
    try:
        staging.adopt([*(entry.path for entry in content.entries), *(entry.path for entry in hidden)])
        manifest = with_hidden(Manifest.of(content.entries, extra), hidden)
        staging.prepare(Prepared(manifest=manifest, flags=(flag,) if flag else (), hidden=hidden))
        store.flush([staging])
        staging.publish(guard)
        store.flush([staging])
        staging.remove()
    finally:
        staging.close()
    return manifest


def _list(store: InstanceStore, path: str) -> tuple[str, ...]:
    try:
        return store.standing_files(path)
    except PathRefusedError as exc:
        raise _in_the_way(store, path, exc.reason) from exc


def _is_flag(name: str, flag: str | None) -> bool:
    """Return whether a file is a flag of our publications, which no manifest lists."""
    last = name.rpartition("/")[2]
    return last == _FLAG or (flag is not None and last == flag.rpartition("/")[2])


def _in_the_way(store: InstanceStore, path: str, reason: str) -> StorageError:
    return StorageError(
        store=store.root_url,
        path=path,
        reason=f"a publication would remove what stands there: {reason}",
        next_step="Move it away, and repeat.",
    )
