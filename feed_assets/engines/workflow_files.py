"""Check that the file of a workflow's URL exists, and tell which code has run."""

import hashlib
import sys
from collections.abc import Mapping
from pathlib import Path

from feed_assets.engines.errors import ServiceError
from feed_assets.engines.port import Work


def find_code_digest(work: Work) -> str | None:
    """Return a digest of the file with the code of work that has run; None if its code is not in a file here."""
    where = work.path.rpartition(":")[0] if work.engine == "python" else work.path
    try:
        if work.engine == "python" and not where.endswith(".py"):
            origin = sys.modules[where].__file__ if where in sys.modules else None
            content = Path(origin).read_bytes() if origin is not None else None
        else:
            content = work.read_file(where)
    except OSError:
        return None
    return None if content is None else f"sha256:{hashlib.sha256(content).hexdigest()}"


def check_url(url: str, options: Mapping[str, object]) -> None:
    """Check that the file of a URL exists.

    Raises:
        ServiceError: the file does not exist, or the filesystem does not answer.
    """
    import fsspec

    try:
        filesystem, path = fsspec.core.url_to_fs(url, **options)
        reason = None if filesystem.exists(path) else "it does not exist"
    except (OSError, ImportError, ValueError, TypeError) as exc:
        raise ServiceError(service=url, reason=f"it cannot be read: {exc}", next_step="Check the address.") from exc
    if reason is not None:
        raise ServiceError(service=url, reason=reason, next_step="Correct the path, or put the file there.")
