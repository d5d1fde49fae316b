"""What S3 answers in one request, and other filesystems through the calls of fsspec, which for S3 makes several."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from fsspec import AbstractFileSystem

if TYPE_CHECKING:
    from feed_assets.storage.s3_direct import Bucket

_LARGEST_COPY = 5 << 30
_MOST_KEYS = 1000


def takes_requests(fs: AbstractFileSystem) -> bool:
    """Whether the requests of S3 can be made."""
    return hasattr(fs, "call_s3")


def get_object(fs: AbstractFileSystem, key: str) -> bytes:
    """The bytes of a small object; `FileNotFoundError` if it does not exist."""
    if not takes_requests(fs):
        return cast(bytes, fs.cat_file(key))
    bucket, name = _find(fs, key)
    found = None if bucket is None else bucket.get(name)
    return cast(bytes, fs.cat_file(key, max_concurrency=1)) if found is None else found


def get_range(fs: AbstractFileSystem, key: str, start: int, end: int) -> bytes:
    """Some bytes of an object, less if it is shorter; `FileNotFoundError` if it does not exist.

    A range that begins at its end, or later, is an `OSError` with EINVAL, or has no bytes.
    """
    if takes_requests(fs):
        bucket, name = _find(fs, key)
        found = None if bucket is None else bucket.get_range(name, start, end)
        if found is not None:
            return found
    return cast(bytes, fs.cat_file(key, start=start, end=end))


def put_object(fs: AbstractFileSystem, key: str, data: bytes, *, is_new: bool = False, is_signed: bool = True) -> str:
    """Write an object of at most 5 GiB; its ETag, "" if the storage tells none.

    With `is_new` there must be none with that key: raises `FileExistsError`. Without `is_signed` the
    bytes may be left out of the signature of the request, because their checksum is looked at anyway.
    """
    if not takes_requests(fs):
        fs.pipe_file(key, data, mode="create" if is_new else "overwrite")
        return ""
    bucket, name = _find(fs, key)
    tag = None if bucket is None else bucket.put(name, data, is_new=is_new, is_signed=is_signed)
    if tag is not None:
        return tag
    condition = {"IfNoneMatch": "*"} if is_new else {}
    return str(fs.call_s3("put_object", **_place(fs, key), Body=data, **condition).get("ETag", ""))


def copy_object(fs: AbstractFileSystem, key: str, to: str, size: int | None) -> None:
    """Copy an object of so many bytes, as far as that is known, within the storage."""
    if not takes_requests(fs) or size is None or size > _LARGEST_COPY:
        fs.cp_file(key, to)
        return
    source, target = _place(fs, key), _place(fs, to)
    fs.call_s3("copy_object", **target, CopySource=source)


def delete_objects(fs: AbstractFileSystem, keys: Sequence[str]) -> bool:
    """Delete many objects of one bucket; False where they have to be deleted one by one, or some still have to be."""
    if not takes_requests(fs) or len(keys) < 2:
        return False
    bucket = fs.split_path(keys[0])[0]
    names = [{"Key": fs.split_path(key)[1]} for key in keys]
    with suppress(OSError):
        return not any(
            fs.call_s3("delete_objects", Bucket=bucket, Delete={"Objects": some, "Quiet": True}).get("Errors")
            for some in (names[start : start + _MOST_KEYS] for start in range(0, len(names), _MOST_KEYS))
        )
    return False


def iter_objects(fs: AbstractFileSystem, prefix: str, limit: int | None = None) -> Iterator[dict[str, Any]]:
    """What S3 tells of the objects whose keys begin with a prefix, in the order of keys, the first `limit` of them."""
    bucket, begin, _ = fs.split_path(prefix)
    options = {"Bucket": bucket, "Prefix": begin, **({"MaxKeys": limit} if limit else {})}
    while True:
        answer = fs.call_s3("list_objects_v2", **options)
        for found in answer.get("Contents", ()):
            yield {**found, "name": f"{bucket}/{found['Key']}"}
        if limit or not answer.get("IsTruncated"):
            return
        options["ContinuationToken"] = answer["NextContinuationToken"]


def _find(fs: AbstractFileSystem, key: str) -> "tuple[Bucket | None, str]":
    """The bucket that makes requests by itself, if there is one, and the name of the object in it."""
    from feed_assets.storage.s3_direct import find_bucket

    bucket, name, _ = fs.split_path(key)
    return find_bucket(fs, bucket), name


def _place(fs: AbstractFileSystem, key: str) -> dict[str, str]:
    bucket, name, _ = fs.split_path(key)
    return {"Bucket": bucket, "Key": name}
