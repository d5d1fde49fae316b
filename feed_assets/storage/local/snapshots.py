"""Keep snapshots of a local directory: its manifest, and its content as hard links."""
# System calls on text and descriptors: half of them have no pathlib form.
# ruff: noqa: PTH101, PTH102, PTH104, PTH105, PTH108, PTH112, PTH123

import os
import uuid
from contextlib import suppress

from feed_assets.storage.copy_port import (
    SNAPSHOTS_FOLDER,
    SNAPSHOTS_SUFFIX,
    Snapshots,
    pack_manifest,
    unpack_manifest,
)
from feed_assets.storage.errors import InstanceChangingError, ManifestError, Refuse, Translated
from feed_assets.storage.local.calls import LocalCalls
from feed_assets.storage.local.files import NO_LINK, link_tree, opened
from feed_assets.storage.local.tree import flush_file, list_directory, make_directories, remove_tree, write_flushed
from feed_assets.storage.manifests import parse_manifest
from feed_assets.storage.paths import CONTROL_FOLDER, MANIFEST_NAME, parse_token, path_name
from feed_assets.storage.records import Manifest

_PRIVATE = 0o700
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW


class LocalSnapshots(Snapshots):
    """Snapshots below `.feed-assets/snapshots/`.

    Only the owner can enter that folder, because the permissions of the directories around a past state are unknown.
    """

    def __init__(self, root: str, root_url: str, calls: LocalCalls, path: str, shelf: str, refuse: Refuse) -> None:
        self._all = f"{root}/{CONTROL_FOLDER}/{SNAPSHOTS_FOLDER}"
        self._folder = f"{self._all}/{path_name(path)}/{parse_token(root_url, shelf)}"
        self._target = f"{root}/{path}"
        self._path = path
        self._root_url = root_url
        self._calls = calls
        self._refuse = refuse

    def names(self) -> list[str]:
        with self._translated():
            return [name.removesuffix(SNAPSHOTS_SUFFIX) for name in list_directory(self._folder) if _is_snapshot(name)]

    def find(self, name: str) -> Manifest | None:
        with self._translated():
            try:
                with open(self._file(name), "rb") as stream:
                    data = stream.read()
            except FileNotFoundError:
                return None
        return unpack_manifest(data, store=self._root_url, path=self._path)

    def keep(self, name: str, manifest: Manifest, *, with_content: bool) -> None:
        file = self._file(name)
        with self._translated():
            make_directories(self._all)
            os.chmod(self._all, _PRIVATE)
            make_directories(self._folder)
            self._tidy()
            if with_content:
                self._keep_content(name, manifest)
            draft = f"{self._folder}/.{uuid.uuid4().hex}"
            write_flushed(draft, pack_manifest(manifest))
            os.replace(draft, file)
            flush_file(self._folder)

    def content(self, name: str) -> str | None:
        folder = self._content(name)
        return f"file://{folder}" if os.path.isdir(folder) else None

    def drop(self, name: str) -> None:
        file = self._file(name)
        with self._translated():
            with suppress(FileNotFoundError):
                os.unlink(file)
            self._tidy()

    def _keep_content(self, name: str, manifest: Manifest) -> None:
        draft = f"{self._folder}/.{uuid.uuid4().hex}"
        os.mkdir(draft, _PRIVATE)
        if not self._link(draft):
            remove_tree(draft)
            return
        if self._read_manifest(draft) != manifest:
            remove_tree(draft)
            reason = "it is not what was published, so there is no snapshot of it"
            raise InstanceChangingError(store=self._root_url, path=self._path, reason=reason)
        folder = self._calls.open_root(draft)
        try:
            self._calls.flush_all(folder)
        finally:
            self._calls.close(folder)
        if os.path.isdir(self._content(name)):
            remove_tree(self._content(name))
        os.rename(draft, self._content(name))

    def _link(self, draft: str) -> bool:
        """Hard-link all files of the directory; return False if the filesystem has no hard links."""
        with opened(self._target, _DIRECTORY) as source, opened(draft, _DIRECTORY) as target:
            try:
                link_tree(source, target)
            except OSError as exc:
                if exc.errno not in NO_LINK:
                    raise
                return False
        return True

    def _read_manifest(self, folder: str) -> Manifest | None:
        try:
            with open(f"{folder}/{MANIFEST_NAME}", "rb") as stream:
                return parse_manifest(stream.read(), store=self._root_url, path=self._path)
        except (FileNotFoundError, ManifestError):
            return None

    def _tidy(self) -> None:
        """Remove drafts, and content without a manifest."""
        names = list_directory(self._folder)
        named = {name.removesuffix(SNAPSHOTS_SUFFIX) for name in names if _is_snapshot(name)}
        for name in names:
            if name not in named and not _is_snapshot(name):
                remove_tree(f"{self._folder}/{name}")

    def _file(self, name: str) -> str:
        return f"{self._content(name)}{SNAPSHOTS_SUFFIX}"

    def _content(self, name: str) -> str:
        return f"{self._folder}/{parse_token(self._root_url, name)}"

    def _translated(self) -> Translated:
        return Translated(self._refuse, self._path)


def _is_snapshot(name: str) -> bool:
    return name.endswith(SNAPSHOTS_SUFFIX) and not name.startswith(".")
