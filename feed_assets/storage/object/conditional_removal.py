"""Remove an object only if it has an ETag, by one request to S3 or Azure that obstore signs and does not send itself.

Services that are compatible with S3 may ignore the condition. So the first removal asks for that of an object of our
own with an ETag that it has not; only a service that refuses it is trusted with others.
"""

import ssl
from collections.abc import Mapping
from datetime import timedelta
from functools import cached_property
from http import HTTPStatus
from http.client import HTTPException
from threading import Lock
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import HTTPSHandler, OpenerDirector, Request, build_opener

import obstore
from obstore.exceptions import BaseError
from obstore.store import AzureStore, S3Store

from feed_assets.storage.paths import CONTROL_FOLDER

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
