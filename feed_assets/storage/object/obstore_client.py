"""Access S3, Google Cloud Storage, Azure and memory through obstore, with Python's own file exceptions."""

import os
import re
import ssl
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from datetime import timedelta
from functools import cache, cached_property
from http import HTTPStatus
from http.client import HTTPException
from queue import SimpleQueue
from threading import Event, Lock, Semaphore
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast
from urllib.error import HTTPError, URLError
from urllib.request import HTTPSHandler, OpenerDirector, Request, build_opener

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    InvalidPathError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import AzureStore, ObjectStore, S3Store

from feed_assets.storage.listing import Entry
from feed_assets.storage.object.client import (
    Children,
    ObjectClient,
    ObjectListing,
    RootAwayError,
    RootRefusedError,
    UnusableKeyError,
    counted,
    each,
    entry_of,
)
from feed_assets.storage.paths import CONTROL_FOLDER

if TYPE_CHECKING:
    from obstore import ObjectMeta, PutMode

_PART = 8 << 20
_MOST_PARTS = 10_000
_UPLOADS = 4
_LARGEST_COPY = 5 << 30
_ETAG_OF_CONTENT = re.compile(r"[0-9a-f]{32}")  # "900150983cd24fb0d6963f7d28e17f72", not "…-2" of two parts
_MESSAGE = re.compile(r"<Message>([^<\n]*)")  # "<Message>The specified bucket does not exist</Message>"
_CODE = re.compile(r"<Code>(\w+)</Code>")  # "<Code>NoSuchBucket</Code>"
_NO_BUCKET = frozenset({"NoSuchBucket", "ContainerNotFound"})
_NO_ACCESS = frozenset({"InvalidAccessKeyId", "SignatureDoesNotMatch", "AccessDenied", "AuthenticationFailed"})
NO_CREDENTIALS = (
    "there are no credentials: no key and secret in storage_options, no AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY "
    "in the environment or .env, no profile in ~/.aws, no role of this machine"
)
_NOT_SENT = "error sending request"
_NO_TOKEN = "Error performing token request"
_UNAVAILABLE = re.compile(r"status code: 50[234]\b")  # "Server returned non-2xx status code: 503 Service Unavailable"
_CAUSE = re.compile(r'message: "([^"]*)"')  # 'Os { code: 111, kind: ConnectionRefused, message: "Connection refused" }'


class ObstoreClient(ObjectClient):
    """The objects of an obstore store; the prefix of that store is the root. `lister` takes any name."""

    def __init__(self, store: ObjectStore, lister: Callable[[str], Children] | None = None) -> None:
        self._store = store
        self._lister = lister
        self._removal = ConditionalRemoval(store) if isinstance(store, AzureStore | S3Store) else None

    def check(self) -> None:
        try:
            self.list(".feed-assets/none")
        except OSError as exc:
            if (refusal := self.find_refusal(exc)) is not None:
                raise refusal from exc
            raise

    def find_refusal(self, error: Exception) -> RootRefusedError | None:
        config: Mapping[str, Any] = getattr(self._store, "config", {})
        at = f" at {endpoint}" if (endpoint := config.get("endpoint")) else ""
        said = str(error.__cause__)
        code = found[1] if (found := _CODE.search(said)) else ""
        if code in _NO_BUCKET:
            bucket = config.get("bucket") or config.get("container_name")
            return RootRefusedError(
                f"bucket {bucket} does not exist{at}", "Create it, or correct the storage of the cluster."
            )
        if NO_CREDENTIALS in f"{error} {said}":
            return RootRefusedError(
                NO_CREDENTIALS,
                "Write them in one of these places, or anon: true in storage_options for what everybody may read.",
            )
        if code in _NO_ACCESS or isinstance(error, PermissionError):
            return RootRefusedError(
                f"the credentials are refused{at}: {error}",
                "Correct key and secret in storage_options, or what their user may do.",
            )
        if _NO_TOKEN in said:
            return RootAwayError(
                f"no token is to be had for it: {error}",
                "Write credentials in storage_options, or let this machine have an identity that may use it.",
            )
        if _NOT_SENT in said:
            cause = f" ({found[1]})" if (found := _CAUSE.search(said)) else ""
            return RootAwayError(
                f"nothing answers{at}{cause}",
                "Correct host and port in endpoint_url of storage_options, or start the service.",
            )
        return None

    def list(self, prefix: str) -> ObjectListing:
        with _REQUEST:
            found = [meta for batch in obstore.list(self._store, prefix or None) for meta in batch]
        start = len(prefix) + 1 if prefix else 0
        names = sorted(meta["path"] for meta in found)
        files = {}
        for meta in found:
            path = meta["path"]
            if len(path) >= start and not (meta["size"] == 0 and _is_folder(path, names)):
                files[path[start:]] = object_file(path[start:], meta)
        return ObjectListing(exists=bool(found), files=files)

    def children(self, prefix: str) -> Children:
        with _REQUEST:
            found = obstore.list_with_delimiter(self._store, prefix or None)
        start = len(prefix) + 1 if prefix else 0
        folders = [path[start:] for path in found["common_prefixes"]]
        files = {meta["path"][start:]: meta for meta in found["objects"] if len(meta["path"]) >= start}
        return Children(folders, {name: object_file(name, meta) for name, meta in files.items()})

    def all_children(self, prefix: str) -> Children:
        try:
            return self.children(prefix)
        except UnusableKeyError:
            if self._lister is None:
                raise
            return self._lister(prefix)

    def find(self, key: str) -> Entry | None:
        with suppress(FileNotFoundError), _REQUEST:
            return object_file("", obstore.head(self._store, key))
        return None

    def get(self, key: str) -> bytes:
        with _REQUEST:
            return bytes(obstore.get(self._store, key).bytes())

    def get_versioned(self, key: str) -> tuple[bytes, object]:
        with _REQUEST:
            found = obstore.get(self._store, key)
            meta = found.meta
            return bytes(found.bytes()), {name: meta[name] for name in ("e_tag", "version") if meta[name]}

    def chunks(self, key: str) -> Iterator[bytes]:
        with _REQUEST:
            yield from obstore.get(self._store, key).stream(min_chunk_size=_PART)

    def chunks_of(self, key: str, tag: str) -> Iterator[bytes]:
        etag = tag.partition(" ")[0] if self._removal is not None else ""
        with _REQUEST:
            found = obstore.get(self._store, key, options={"if_match": f'"{etag}"'} if etag else None)
            if object_file("", found.meta).version != tag:  # the service ignores the condition, or knows none
                raise FileExistsError(key)
            yield from found.stream(min_chunk_size=_PART)

    def put(self, key: str, data: bytes, *, is_new: bool = False, replaces: object = None) -> None:
        mode = "create" if is_new else replaces or "overwrite"
        with _REQUEST:
            obstore.put(self._store, key, data, mode=cast("PutMode", mode), use_multipart=False)

    def put_chunks(self, key: str, size: int, chunks: Iterable[bytes | memoryview]) -> None:
        if size <= _PART:
            self.put(key, b"".join(counted(chunks, size)))
            return
        ready: SimpleQueue[bytes | BaseException | None] = SimpleQueue()
        room, is_over = Semaphore(_UPLOADS), Event()

        def queued_chunks() -> Iterator[bytes]:
            while (chunk := ready.get()) is not None:
                if isinstance(chunk, BaseException):
                    raise chunk
                room.release()
                yield chunk

        def upload() -> None:
            try:
                part = max(_PART, -(-size // _MOST_PARTS))
                with _REQUEST:
                    obstore.put(
                        self._store,
                        key,
                        queued_chunks(),
                        use_multipart=True,
                        chunk_size=part,
                        max_concurrency=_UPLOADS,
                    )
            finally:
                is_over.set()
                room.release()

        # The upload has its own thread: chunks that come from obstore cannot be read while obstore writes in this one.
        with ThreadPoolExecutor(1) as pool:
            done = pool.submit(upload)
            try:
                for chunk in counted(chunks, size):
                    room.acquire()
                    if is_over.is_set():
                        break
                    ready.put(chunk)
                ready.put(None)
            except BaseException as exc:
                ready.put(exc)
                wait([done])
                raise
            done.result()

    def copy(self, key: str, to: str, size: int | None) -> None:
        if size is not None and size > _LARGEST_COPY:  # the limit of S3 for one copy request
            self.put_chunks(to, size, self.chunks(key))
            return
        with _REQUEST:
            obstore.copy(self._store, key, to)

    def remove(self, keys: Sequence[str]) -> None:
        if not keys:
            return
        try:
            with _REQUEST:
                obstore.delete(self._store, keys)
        except FileNotFoundError:  # some storages stop at the first missing object
            if len(keys) > 1:
                each(lambda key: self.remove([key]), keys)

    def remove_unchanged(self, key: str, size: int, tag: str) -> None:
        etag = tag.partition(" ")[0]
        if self._removal is None or not etag or not self._removal.remove(key, etag):
            super().remove_unchanged(key, size, tag)


class _Request:
    """A context that translates errors of obstore into file errors.

    A process forked from one that has made requests cannot make any, because it lacks the threads of obstore.
    """

    def __enter__(self) -> None:
        if _owner() != os.getpid():
            raise OSError("this process was forked off one that has used the storage; start it anew instead (spawn)")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        match error:
            case FileNotFoundError() if error.errno is None:
                raise FileNotFoundError(_reason(error)) from error
            case AlreadyExistsError() | PreconditionError():
                raise FileExistsError(_reason(error)) from error
            case PermissionDeniedError() | UnauthenticatedError():
                raise PermissionError(_reason(error)) from error
            case InvalidPathError():
                raise UnusableKeyError(_reason(error)) from error
            case BaseError() if _NOT_SENT in (said := str(error)) or _NO_TOKEN in said or _UNAVAILABLE.search(said):
                raise ConnectionError(_reason(error)) from error
            case BaseError() | ValueError():
                raise OSError(_reason(error)) from error


_REQUEST = _Request()


@cache
def _owner() -> int:
    """Return the id of the process that made the first request; forked processes inherit the cached value."""
    return os.getpid()


def _reason(error: BaseException) -> str:
    """Return the message of a storage error, without its debug details."""
    said, _, debug = str(error).partition("\n\nDebug source")
    if message := _MESSAGE.search(said):
        return message.group(1).rstrip(". ")
    cause = _CAUSE.search(debug)
    return said.partition(": <?xml")[0].rstrip(". ") + (f" ({cause.group(1)})" if cause else "")


def _is_folder(path: str, names: Sequence[str]) -> bool:
    """Return whether an empty object is only the marker of a folder with other objects (its key ends with a slash)."""
    place = bisect_left(names, f"{path}/")
    return place < len(names) and names[place].startswith(f"{path}/")


def object_file(path: str, meta: "ObjectMeta | Mapping[str, Any]") -> Entry:
    """Convert the metadata of an object. With an ETag, the tag has full seconds; some responses have no finer times."""
    modified_at = meta["last_modified"]
    etag = (meta["e_tag"] or "").strip('"')
    tag = f"{etag} {modified_at.replace(microsecond=0)}" if etag else f" {modified_at}"
    checksum = f"etag:{etag}" if _ETAG_OF_CONTENT.fullmatch(etag) else ""
    return entry_of(path, meta["size"], modified_at, tag, checksum)


_SIGNED_FOR = timedelta(minutes=15)
_SECONDS = 60.0
_PROBE = f"{CONTROL_FOLDER}/conditions"
_DECIDED = frozenset({200, 202, 204, HTTPStatus.PRECONDITION_FAILED, HTTPStatus.NOT_FOUND})
_NOT_NOW = frozenset({HTTPStatus.TOO_MANY_REQUESTS, 500, 502, 503, 504})


class ConditionalRemoval:
    """Conditional removals of one store; thread-safe."""

    def __init__(self, store: AzureStore | S3Store) -> None:
        self._store = store
        self._lock = Lock()
        self._is_trusted: bool | None = None

    def remove(self, key: str, etag: str) -> bool:
        """Remove an object unless it has another ETag or is gone; return False if the service cannot decide that.

        Raises:
            OSError: the service does not answer, or is too busy.
        """
        with self._lock:
            if self._is_trusted is None:
                self._is_trusted = self._knows_conditions()
        return self._is_trusted and self._request(key, etag) in _DECIDED

    def _knows_conditions(self) -> bool:
        try:
            obstore.put(self._store, _PROBE, b"")
        except BaseError:
            return False
        return self._request(_PROBE, "another") == HTTPStatus.PRECONDITION_FAILED

    def _request(self, key: str, etag: str) -> int:
        """Ask for a removal, and return the status of the answer; 0 if it cannot be signed."""
        try:
            url = obstore.sign(self._store, "DELETE", key, _SIGNED_FOR)
        except (BaseError, ValueError):
            return 0
        request = Request(url, method="DELETE", headers={"If-Match": f'"{etag}"'})
        try:
            with self._opener.open(request, timeout=_SECONDS) as answer:
                return int(answer.status)
        except HTTPError as exc:
            exc.close()
            if exc.code in _NOT_NOW:
                raise ConnectionError(f"it answers {exc.code} to the removal of {key!r}") from exc
            return exc.code
        except (HTTPException, URLError) as exc:
            raise ConnectionError(f"it does not answer to the removal of {key!r}: {exc}") from exc

    @cached_property
    def _opener(self) -> OpenerDirector:
        """Trust whom the store trusts; a context is made once, because that takes longer than a request."""
        options: Mapping[str, Any] = self._store.client_options or {}
        context = ssl.create_default_context()
        if root := options.get("root_certificate"):
            context.load_verify_locations(cadata=bytes(root).decode())
        if options.get("allow_invalid_certificates"):
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return build_opener(HTTPSHandler(context=context))
