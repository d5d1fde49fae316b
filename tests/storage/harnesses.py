"""What the storage tests share: a store with a way to put files into it from outside, and short publications."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from feed_assets.entities.copies.options import Existing
from feed_assets.storage.object.client import ObjectClient
from feed_assets.storage.object.store import ObjectStore
from feed_assets.storage.paths import SINGLE_FILE
from feed_assets.storage.port import InstanceStore
from feed_assets.storage.records import Clearing, Manifest, StagingPlace
from tests.object_servers import BUCKET, s3_client

Files = Mapping[str, bytes]


class FencedOut(Exception):
    """What a guard of these tests raises."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreHarness:
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


def local_harness(store: InstanceStore, root: Path) -> StoreHarness:
    def put(path: str, data: bytes) -> None:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)

    def names() -> set[str]:
        found = {item.relative_to(root).as_posix() for item in root.rglob("*") if item.is_file()}
        return {name for name in found if not name.startswith(".feed-assets/")}

    return StoreHarness(store=store, put=put, remove=lambda path: (root / path).unlink(), names=names)


def object_harness(store: InstanceStore) -> StoreHarness:
    client = client_of(store)

    def names() -> set[str]:
        return {name for name in client.list("").files if not name.startswith(".feed-assets/")}

    return StoreHarness(store=store, put=client.put, remove=lambda path: client.remove([path]), names=names)


def s3_harness(store: InstanceStore, options: Mapping[str, object], prefix: str) -> StoreHarness:
    """A store on S3, whose outside is a client that is none of ours."""
    s3 = s3_client(options)

    def names() -> set[str]:
        pages = s3.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=f"{prefix}/")
        found = {each["Key"].removeprefix(f"{prefix}/") for page in pages for each in page.get("Contents", ())}
        return {name for name in found if not name.startswith(".feed-assets/")}

    return StoreHarness(
        store=store,
        put=lambda path, data: s3.put_object(Bucket=BUCKET, Key=f"{prefix}/{path}", Body=data),
        remove=lambda path: s3.delete_object(Bucket=BUCKET, Key=f"{prefix}/{path}"),
        names=names,
    )


def client_of(store: InstanceStore) -> ObjectClient:
    assert isinstance(store, ObjectStore)
    return store.client


def allow() -> None:
    """The guard that lets everything through."""


def forbid() -> None:
    raise FencedOut


def cannot_exchange(one: str, other: str) -> bool:
    """What `exchange` answers on a filesystem that knows no exchange."""
    return False


def stage(store: InstanceStore, path: str, files: Files, token: str = "run-1") -> StagingPlace:
    staging = store.stage(path, token)
    for name, data in files.items():
        target = staging.local_path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    return staging


REPLACING = Clearing(sweep="displaced-1", existing=Existing.REPLACE)
"""Somebody has decided that foreign content goes to the trash."""


def publish(
    store: InstanceStore,
    path: str,
    files: Files,
    *,
    flag: str | None = "_SUCCESS",
    token: str = "run-1",
    clearing: Clearing | None = None,
) -> Manifest:
    return store.publish(stage(store, path, files, token), flag=flag, guard=allow, extra={}, clearing=clearing)


def content_names(store: InstanceStore, path: str, flag: str | None = None) -> tuple[str, ...]:
    return tuple(entry.path for entry in store.manifest(path, flag).entries)


def read_all(store: InstanceStore, path: str) -> dict[str, bytes]:
    found = {}
    for name in content_names(store, path):
        found[name] = read_file(store, path, name)
    return found


def read_file(store: InstanceStore, path: str, file: str) -> bytes:
    """Read one file of an instance; "" is the instance itself."""
    place = store.place(path)
    with place.store.reading(place.path) as reading:
        return b"".join(map(bytes, reading.chunks(file or SINGLE_FILE)))
