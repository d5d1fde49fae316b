"""What the storage tests share: a store with a way to put files into it from outside, and short publications."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from fsspec import AbstractFileSystem

from feed_assets.storage.port import InstanceStore
from feed_assets.storage.records import Manifest, Staging

Files = Mapping[str, bytes]


class FencedOut(Exception):
    """What a guard of these tests raises."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bed:
    """A store, and the outside: `put` writes a file by its path below the root, `names` lists what everybody sees.

    `spelled` is how errors name a path.
    """

    store: InstanceStore
    put: Callable[[str, bytes], None]
    remove: Callable[[str], None]
    names: Callable[[], set[str]]
    spelled: Callable[[str], str] = lambda path: path

    def land(self, path: str, files: Files) -> None:
        for name, data in files.items():
            self.put(f"{path}/{name}", data)


def local_bed(store: InstanceStore, root: Path) -> Bed:
    def put(path: str, data: bytes) -> None:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)

    def names() -> set[str]:
        found = {item.relative_to(root).as_posix() for item in root.rglob("*") if item.is_file()}
        return {name for name in found if not name.startswith(".feed-assets/")}

    return Bed(store=store, put=put, remove=lambda path: (root / path).unlink(), names=names)


def object_bed(store: InstanceStore, fs: AbstractFileSystem, root: str) -> Bed:
    def names() -> set[str]:
        found = {name.removeprefix(root).lstrip("/") for name in fs.find(root)}
        return {name for name in found if not name.startswith(".feed-assets/")}

    return Bed(
        store=store,
        put=lambda path, data: fs.pipe_file(f"{root}/{path}", data),
        remove=lambda path: fs.rm_file(f"{root}/{path}"),
        names=names,
    )


def allow() -> None:
    """The guard that lets everything through."""


def forbid() -> None:
    raise FencedOut


def cannot_exchange(one: str, other: str) -> bool:
    """What `exchange` answers on a filesystem that knows no exchange."""
    return False


def stage(store: InstanceStore, path: str, files: Files, token: str = "run-1") -> Staging:
    staging = store.stage(path, token)
    for name, data in files.items():
        target = staging.local_path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    return staging


def publish(
    store: InstanceStore, path: str, files: Files, *, flag: str | None = "_SUCCESS", token: str = "run-1"
) -> Manifest:
    return store.publish(stage(store, path, files, token), flag=flag, guard=allow, extra={})


def read_all(store: InstanceStore, path: str) -> dict[str, bytes]:
    found = {}
    for name in store.files(path):
        with store.open(path, name) as stream:
            found[name] = stream.read()
    return found
