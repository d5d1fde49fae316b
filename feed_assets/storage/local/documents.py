"""Keep documents of ours below a local root, and the content of snapshots as hard links beside their manifests."""
# System calls on text and descriptors: half of them have no pathlib form.
# ruff: noqa: PTH101, PTH102, PTH104, PTH112, PTH120, PTH123

import os
import uuid
from contextlib import AbstractContextManager, suppress

from feed_assets.storage.copy_port import Documents, Snapshots
from feed_assets.storage.errors import InstanceChangingError, ManifestError, Translated
from feed_assets.storage.local.calls import LocalCalls
from feed_assets.storage.local.files import NO_LINK, copy_tree, link_file, opened
from feed_assets.storage.local.tree import list_directory, make_directories, remove_tree
from feed_assets.storage.manifests import parse_manifest
from feed_assets.storage.paths import MANIFEST_NAME, parse_token
from feed_assets.storage.records import Manifest


class LocalDocuments(Documents):
    """Documents in a folder below `root`, an absolute directory."""

    def __init__(self, root: str, calls: LocalCalls, store: str, folder: str, suffix: str, told: Translated) -> None:
        super().__init__(store, folder, suffix, told)
        self.calls = calls
        self.path = f"{root}/{folder}"
        self._root = root

    def names(self) -> list[str]:
        with self.translated, suppress(FileNotFoundError), self._opened() as folder:
            return self._names_of(name for name in self.calls.list_folder(folder) if not name.startswith("."))
        return []

    def find(self, name: str) -> bytes | None:
        with self.translated, suppress(FileNotFoundError), self._opened() as folder:
            return self.calls.read_file(folder, self._file(name))
        return None

    def keep(self, name: str, content: bytes) -> None:
        file, draft = self._file(name), f".{uuid.uuid4().hex}"
        with self.translated:
            self.calls.close(self.calls.open_root(self._root))
            make_directories(self.path)
            with self._opened() as folder:
                self.calls.write_file(folder, draft, content)
                self.calls.replace(folder, draft, file)
                self.calls.flush_folder(folder)

    def drop(self, name: str) -> None:
        with self.translated, suppress(FileNotFoundError), self._opened() as folder:
            self.calls.remove_file(folder, self._file(name))
            self.calls.flush_folder(folder)

    def _opened(self) -> AbstractContextManager[int]:
        return self.calls.opened_below(self._root, self._folder)


_PRIVATE = 0o700
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW


class LocalSnapshots(Snapshots):
    """Snapshots of the absolute directory `target`, with its content beside the `documents`.

    Only the owner can enter the folder of all snapshots, because the permissions of the directories around a past state
    are unknown.
    """

    def __init__(self, documents: LocalDocuments, store: str, path: str, target: str) -> None:
        super().__init__(documents, store, path)
        self._folder = documents.path
        self._target = target
        self._calls = documents.calls
        self._translated = documents.translated

    def keep(self, name: str, manifest: Manifest, *, with_content: bool) -> None:
        with self._translated:
            everything = os.path.dirname(os.path.dirname(self._folder))
            make_directories(everything)
            os.chmod(everything, _PRIVATE)
            make_directories(self._folder)
            self._tidy()
            if with_content:
                self._keep_content(name, manifest)
        super().keep(name, manifest, with_content=with_content)

    def content(self, name: str) -> str | None:
        folder = self._folder_of(name)
        return f"file://{folder}" if os.path.isdir(folder) else None

    def drop(self, name: str) -> None:
        super().drop(name)
        with self._translated:
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
            raise InstanceChangingError(store=self._store, path=self._path, reason=reason)
        with self._calls.opened_below(draft, "") as folder:
            self._calls.flush_all(folder)
        if os.path.isdir(self._folder_of(name)):
            remove_tree(self._folder_of(name))
        os.rename(draft, self._folder_of(name))

    def _link(self, draft: str) -> bool:
        """Hard-link all files of the directory; return False if the filesystem has no hard links."""
        with opened(self._target, _DIRECTORY) as source, opened(draft, _DIRECTORY) as target:
            try:
                copy_tree(source, target, link_file)
            except OSError as exc:
                if exc.errno not in NO_LINK:
                    raise
                return False
        return True

    def _read_manifest(self, folder: str) -> Manifest | None:
        try:
            with open(f"{folder}/{MANIFEST_NAME}", "rb") as stream:
                return parse_manifest(stream.read(), store=self._store, path=self._path)
        except (FileNotFoundError, ManifestError):
            return None

    def _tidy(self) -> None:
        """Remove drafts, and content without a manifest."""
        named = {*self.names()}
        for name in list_directory(self._folder):
            if name.split(".json.gz")[0] not in named:
                remove_tree(f"{self._folder}/{name}")

    def _folder_of(self, name: str) -> str:
        return f"{self._folder}/{parse_token(self._store, name)}"
