"""Large objects of S3 in parts that several processes upload at once. Other filesystems write objects whole.

What is under way is written down in an object of its own, so that whoever comes later can go on or break it off.
"""

import json
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from fsspec import AbstractFileSystem

from feed_assets.storage.object_requests import put_object, takes_requests
from feed_assets.storage.object_tree import list_below, read_document, remove_objects

GRID = 8 << 20
_MOST_PARTS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """An object that comes in parts of `part` bytes; its parts are invisible until it is completed."""

    upload_id: str
    part: int


class MultipartUploads:
    """The uploads of one staging: `data` is the prefix of its objects, `notes` that of what is under way."""

    def __init__(self, fs: AbstractFileSystem, data: str, notes: str) -> None:
        self._fs = fs
        self._data = data
        self._notes = notes

    def begin(self, file: str, name: str, size: int) -> Upload:
        """Begin an upload. `name` is a short name for the file."""
        part = part_size(size)
        answer = self._call("create_multipart_upload", file)
        upload = Upload(upload_id=str(answer["UploadId"]), part=part)
        document = {"version": 1, "file": file, "upload": upload.upload_id, "part": part}
        put_object(self._fs, f"{self._notes}/{name}.json", json.dumps(document).encode())
        return upload

    def find(self, name: str) -> Upload | None:
        """The upload that is under way."""
        document = read_document(self._fs, f"{self._notes}/{name}.json")
        if document is None:
            return None
        return Upload(upload_id=document["upload"], part=document["part"])

    def put(self, file: str, upload: Upload, offset: int, data: bytes) -> None:
        """Upload one part."""
        number = offset // upload.part + 1
        self._call("upload_part", file, UploadId=upload.upload_id, PartNumber=number, Body=data)

    def parts(self, file: str, upload: Upload) -> dict[int, tuple[int, str]]:
        """Size and tag of each part that has been uploaded, by its number; none if the upload is over."""
        found: dict[int, tuple[int, str]] = {}
        after = 0
        while True:
            try:
                answer = self._call("list_parts", file, UploadId=upload.upload_id, PartNumberMarker=after)
            except FileNotFoundError:
                return {}
            for part in answer.get("Parts", ()):
                found[int(part["PartNumber"])] = (int(part["Size"]), str(part["ETag"]))
            if not answer.get("IsTruncated"):
                return found
            after = int(answer["NextPartNumberMarker"])

    def complete(self, file: str, name: str, size: int) -> None:
        """Make the object visible in the staging; raises `OSError` if a part is missing."""
        upload = self.find(name)
        if upload is None:
            raise FileNotFoundError(file)
        parts = self.parts(file, upload)
        if sum(each[0] for each in parts.values()) != size:
            raise OSError(f"parts of {file!r} are missing in its upload")
        listed = [{"PartNumber": number, "ETag": parts[number][1]} for number in sorted(parts)]
        self._call("complete_multipart_upload", file, UploadId=upload.upload_id, MultipartUpload={"Parts": listed})
        remove_objects(self._fs, [f"{self._notes}/{name}.json"])

    def abort(self, file: str, name: str) -> None:
        """Break off an upload and forget it, if there is one."""
        upload = self.find(name)
        if upload is not None:
            with suppress(FileNotFoundError):
                self._call("abort_multipart_upload", file, UploadId=upload.upload_id)
            remove_objects(self._fs, [f"{self._notes}/{name}.json"])

    def _call(self, method: str, file: str, **arguments: object) -> Any:
        bucket, key, _ = self._fs.split_path(f"{self._data}/{file}")
        return self._fs.call_s3(method, Bucket=bucket, Key=key, **arguments)


def part_size(size: int) -> int:
    """The size of the parts of an object, so that they are not too many.

    >>> part_size(1 << 30) >> 20, part_size(100 << 30) >> 20
    (8, 16)
    """
    part = GRID
    while part * _MOST_PARTS < size:
        part *= 2
    return part


def has_uploads(fs: AbstractFileSystem) -> bool:
    """Whether objects can come in parts, in any order and from several processes."""
    return takes_requests(fs)


def abort_uploads(fs: AbstractFileSystem, data: str, notes: str) -> None:
    """Break off the uploads of a staging that is to be removed, where there are such."""
    if not has_uploads(fs):
        return
    uploads = MultipartUploads(fs, data, notes)
    for name in list_below(fs, notes).files:
        document = read_document(fs, f"{notes}/{name}")
        if document is not None:
            uploads.abort(str(document["file"]), name.removesuffix(".json"))
