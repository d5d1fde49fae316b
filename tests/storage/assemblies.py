"""What the tests of stagings share: an instance, and what its copy records and becomes."""

from feed_assets.storage.copy_port import Prepared, StagedFile, Staging
from feed_assets.storage.records import Manifest, ManifestEntry

PATH = "weather/05"
FLAG = "_SUCCESS"
TOKEN = "copy-1"
FILES = {"a.csv": b"aaa", "s/b.csv": b"bb", "empty.csv": b""}
MiB = 1 << 20


def staged(file: str, data: bytes, *, version: str = "1") -> StagedFile:
    return StagedFile(file, len(data), "blake3:x", version, is_settled=True)


def put(staging: Staging, file: str, data: bytes) -> None:
    """Put a file of which nothing is recorded, in two pieces."""
    staging.put(file, len(data), [data[:1], data[1:]])


def read_back(staging: Staging, file: str) -> bytes:
    return b"".join(bytes(chunk) for chunk in staging.chunks(file))


def prepared(files: dict[str, bytes], flag: str | None = FLAG) -> Prepared:
    entries = [ManifestEntry(path=name, size=len(data), checksum=f"sha256:{name}") for name, data in files.items()]
    return Prepared(manifest=Manifest.of(entries, {"by": "a copy"}), flags=(flag,) if flag else ())
