"""What the tests of the port to copying share: an instance, and what its copy notes and becomes."""

from feed_assets.storage.copy_port import Prepared, Written
from feed_assets.storage.records import Manifest, ManifestEntry

PATH = "weather/05"
FLAG = "_SUCCESS"
TOKEN = "copy-1"
FILES = {"a.csv": b"aaa", "s/b.csv": b"bb", "empty.csv": b""}
MiB = 1 << 20


def note(file: str, data: bytes, *, offset: int = 0, sign: str = "1") -> Written:
    return Written(file=file, offset=offset, size=len(data), checksum="sha256:x", sign=sign, is_settled=True)


def prepared(files: dict[str, bytes], flag: str | None = FLAG) -> Prepared:
    entries = [ManifestEntry(path=name, size=len(data), checksum=f"sha256:{name}") for name, data in files.items()]
    return Prepared(manifest=Manifest.of(entries, {"by": "a copy"}), flags=(flag,) if flag else ())
