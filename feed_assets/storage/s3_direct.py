"""The requests of S3 that copies make by the thousand, made by compiled code (obstore) instead of s3fs.

s3fs says where the storage is and who asks. What does not succeed is left to it: its errors are those that callers
know, it tries again, and it knows every option. Not used where an option would be passed over, and not in a process
that was forked off one that has used it, because its threads are not there.
"""

import os
from collections.abc import Callable
from datetime import timedelta
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Literal, TypeVar

import obstore
from fsspec import AbstractFileSystem
from fsspec.asyn import sync
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import S3Store

from feed_assets.clock import SystemClock

if TYPE_CHECKING:
    from obstore.store import S3Config, S3Credential

_KNOWN_OPTIONS = frozenset({"region_name", "endpoint_url"})
_CREDENTIALS_STAY = timedelta(minutes=5)
_CONNECTED, _ANSWERED = timedelta(seconds=10), timedelta(minutes=10)
_MISFITS = 5

Answer = TypeVar("Answer")


class Bucket:
    """A bucket, as far as requests to it succeed. `unsigned` is the same one, without a signature of what is sent."""

    def __init__(self, store: S3Store, unsigned: S3Store) -> None:
        self._store = store
        self._unsigned = unsigned
        self._misfits = 0

    def put(self, key: str, data: bytes, *, is_new: bool = False, is_signed: bool = True) -> str | None:
        """Write an object; its ETag. None: it was not done, or nobody knows. Raises `FileExistsError`.

        The bytes are part of the signature unless not `is_signed`, or encrypted.
        """
        store = self._store if is_signed else self._unsigned
        mode: Literal["create", "overwrite"] = "create" if is_new else "overwrite"
        try:
            done = self._try(lambda: obstore.put(store, key, data, mode=mode, use_multipart=False))
        except AlreadyExistsError as exc:
            raise FileExistsError(key) from exc
        return None if done is None else done["e_tag"] or ""

    def get(self, key: str) -> bytes | None:
        """The bytes of an object; None if nobody knows. Raises `FileNotFoundError`."""
        return self._try(lambda: bytes(obstore.get(self._store, key).bytes()))

    def get_range(self, key: str, start: int, end: int) -> bytes | None:
        """Some bytes of an object, less if it is shorter; None if nobody knows. Raises `FileNotFoundError`."""
        return self._try(lambda: bytes(obstore.get_range(self._store, key, start=start, end=end)))

    def _try(self, request: Callable[[], Answer]) -> Answer | None:
        """Make a request once; after some that failed in a row no more are made: something is not as it seems."""
        if self._misfits >= _MISFITS:
            return None
        try:
            answer = request()
        except (AlreadyExistsError, FileNotFoundError):
            self._misfits = 0
            raise
        except ValueError:  # such a key it does not know
            return None
        except (BaseError, OSError):
            self._misfits += 1
            return None
        self._misfits = 0
        return answer


@cache
def _owner() -> int:
    """The process that uses compiled requests: the first one; others that were forked off it remember it."""
    return os.getpid()


def find_bucket(fs: AbstractFileSystem, name: str) -> Bucket | None:
    """The bucket of a filesystem of s3fs; None where only s3fs can do what is asked."""
    return _open_bucket(fs, name) if _owner() == os.getpid() else None


@lru_cache(maxsize=64)
def _open_bucket(fs: AbstractFileSystem, name: str) -> Bucket | None:
    has_others = fs.anon or fs.version_aware or fs.cache_regions or fs.req_kw or fs.s3_additional_kwargs
    if has_others or fs.config_kwargs or fs.client_kwargs.keys() - _KNOWN_OPTIONS or ":" in name:
        return None
    meta = fs.s3.meta
    is_encrypted = meta.endpoint_url.startswith("https:")
    if is_encrypted and os.environ.get("AWS_CA_BUNDLE"):
        return None

    def open_store(*, is_unsigned: bool) -> S3Store:
        config: S3Config = {
            "endpoint": meta.endpoint_url,
            "region": meta.region_name or "us-east-1",
            "unsigned_payload": is_unsigned,
            "virtual_hosted_style_request": False,
            "skip_signature": False,
        }
        return S3Store(
            name,
            config=config,
            client_options={"connect_timeout": _CONNECTED, "timeout": _ANSWERED, "allow_http": True},
            retry_config={"max_retries": 0},
            credential_provider=lambda: _find_credentials(fs),
        )

    unsigned = open_store(is_unsigned=True)
    return Bucket(unsigned if is_encrypted else open_store(is_unsigned=False), unsigned)  # as botocore signs


def _find_credentials(fs: AbstractFileSystem) -> "S3Credential":
    """Those that s3fs signs with; asked for again now and then, because some end."""
    key, secret, token = (fs.key, fs.secret, fs.token) if fs.key else sync(fs.loop, _find_in_session, fs)
    expires_at = SystemClock().now() + _CREDENTIALS_STAY
    return {"access_key_id": key, "secret_access_key": secret, "token": token, "expires_at": expires_at}


async def _find_in_session(fs: AbstractFileSystem) -> tuple[str, str, str | None]:
    credentials = await fs.session.get_credentials()
    if credentials is None:
        raise ValueError("nobody has said who asks")
    found = await credentials.get_frozen_credentials()
    return found.access_key, found.secret_key, found.token
