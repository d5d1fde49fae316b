"""Log-in by an issuer of OpenID Connect: the code flow of a browser, and bearer tokens that the issuer has signed."""

import hmac
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from http import HTTPStatus
from threading import Lock
from time import monotonic
from typing import Any
from urllib.parse import urlencode

import requests
from authlib.integrations.base_client import OAuthError
from authlib.integrations.requests_client import OAuth2Session
from authlib.oauth2.claims import JWTClaims
from authlib.oidc.core import CodeIDToken
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import JWKRegistry, KeySet
from joserfc.jws import JWSRegistry
from urllib3.exceptions import HTTPError

from feed_assets.access.principals import Principal
from feed_assets.engines.errors import ServiceAwayError
from feed_assets.errors import FeedAssetsError, SettingsError
from feed_assets.json_form import parse_json
from feed_assets.masking import remember_unnamed
from feed_assets.server.errors import RequestRefusedError
from feed_assets.server.identity.tokens import is_name, is_person
from feed_assets.setting_sections import OidcSettings
from feed_assets.settings import resolve_references

ALGORITHMS = tuple(f"{family}{bits}" for family in ("RS", "PS", "ES") for bits in (256, 384, 512))
"""Signatures that are checked by a public key; who knows a shared one could sign for others."""
_LEEWAY = 60  # seconds by which two clocks may differ
_KEPT, _AGAIN, _AT_LOG_IN = 3600.0, 30.0, 5.0
"""Seconds after which the issuer is asked anew: always, after a fault or for a new key, and for who logs in."""
_PATIENCE = (3.0, 5.0)
_LARGEST = 1 << 20
_SHOWN = 60
_NEEDED = ("authorization_endpoint", "token_endpoint", "jwks_uri")
_MALFORMED = (JoseError, HTTPError, ValueError, TypeError, KeyError, AttributeError, RecursionError)


class Issuer:
    """The issuer of the settings. No session asks it, and what is known of it holds on while it is away."""

    def __init__(self, settings: OidcSettings, tried: tuple[str, ...] = ()) -> None:
        """Raises SettingsError if the environment lacks the secret."""
        self._settings, self._tried = settings, tried
        self._lock, self._asked_at = Lock(), float("-inf")
        self._fault: FeedAssetsError | None = None
        self._endpoints: Mapping[str, Any] = {}
        self._keys = KeySet([])
        self._secret = resolve_references("oidc.client_secret", settings.client_secret, os.environ, tried)
        if self._secret:
            remember_unnamed(self._secret)

    @property
    def host(self) -> str:
        """The host where people log in."""
        return self._settings.issuer.partition("://")[2].partition("/")[0]

    @property
    def log_out_address(self) -> str | None:
        """Where its own session ends, as far as it says so."""
        address = str(self._endpoints.get("end_session_endpoint"))
        return f"{address}?{urlencode({'client_id': self._settings.client_id})}" if address.startswith("http") else None

    def find_fault(self) -> FeedAssetsError | None:
        """Ask it, and return why it cannot be used now: it is away, or the settings are wrong."""
        self._look(_AT_LOG_IN)
        return self._fault

    def find_address(self, redirect_uri: str, secret: str) -> str:
        """Return where a browser logs in that keeps a secret meanwhile. Raises ServiceAwayError if nobody can now."""
        if fault := self.find_fault():
            raise self._away(fault)
        told = {"state": derive(secret, "state"), "nonce": derive(secret, "nonce"), "code_verifier": derive(secret, "")}
        endpoint = self._endpoints["authorization_endpoint"]
        return str(self._open_client(redirect_uri).create_authorization_url(endpoint, **told)[0])

    def redeem(self, redirect_uri: str, code: str, secret: str) -> Principal:
        """Return who has logged in with the browser that has the secret. Raises as `find_holder`."""
        told = {"grant_type": "authorization_code", "code": code, "code_verifier": derive(secret, "")}
        try:
            endpoint = self._endpoints["token_endpoint"]
            found = self._open_client(redirect_uri).fetch_token(endpoint, allow_redirects=False, **told)
        except OAuthError as exc:
            raise refused(f"the issuer refuses its code: {str(exc.error)[:_SHOWN]}") from None
        except (requests.RequestException, ValueError, KeyError) as exc:
            raise self._away(exc) from None
        params = {"nonce": derive(secret, "nonce"), "client_id": self._settings.client_id}
        return self._read(found.get("id_token"), self._settings.client_id, CodeIDToken, params)

    def find_holder(self, bearer: str) -> Principal:
        """Return who holds a token that the issuer has signed for this server. Raises RequestRefusedError of another,
        and ServiceAwayError if no key is known.
        """
        return self._read(bearer, self._settings.audience or self._settings.client_id, JWTClaims, {})

    def _read(self, token: Any, audience: str, claims_of: Callable[..., Any], params: Mapping[str, Any]) -> Principal:
        """Return who a token names. The time is that of the world: a replay of past data has another one."""
        expected = {"iss": self._settings.issuer, "aud": audience}
        options = {name: {"essential": True, "value": expected.get(name)} for name in ("iss", "aud", "exp")}
        registry = JWSRegistry(algorithms=ALGORITHMS, strict_check_header=False)
        try:
            found = jwt.decode(token, self._find_keys, registry=registry)
            claims = claims_of(found.claims, found.header, options, params)
            claims.validate(leeway=_LEEWAY)
        except JoseError as exc:
            raise refused(f"its token is not valid: {exc.error} {getattr(exc, 'claim', '')}".rstrip()) from None
        except _MALFORMED:
            raise refused("its token is malformed") from None
        name, groups = claims.get(self._settings.name_claim), claims.get(self._settings.groups_claim)
        if not isinstance(name, str) or not is_person(name):
            raise refused(f"its token has no name in the claim {self._settings.name_claim} (setting oidc.name_claim)")
        if self._settings.name_claim == "email" and claims.get("email_verified", True) is not True:
            raise refused("the issuer has not verified its address")
        told = groups if isinstance(groups, list) else [groups]
        return Principal(name=name, groups=frozenset(each for each in told if isinstance(each, str) and is_name(each)))

    def _open_client(self, redirect_uri: str) -> Any:
        told = {"redirect_uri": redirect_uri, "scope": " ".join(self._settings.scopes), "default_timeout": _PATIENCE}
        return OAuth2Session(self._settings.client_id, self._secret, code_challenge_method="S256", **told)

    def _find_keys(self, signed: Any) -> KeySet:
        """Return the keys among which is that of a token; a new one is asked for."""
        self._look(_AGAIN if self._fault or not self._keys else _KEPT)
        if (kid := signed.headers().get("kid")) is not None and all(each.kid != kid for each in self._keys):
            self._look(_AGAIN)
        if not self._keys:
            raise self._away(self._fault or TimeoutError())
        return self._keys

    def _look(self, seconds: float) -> None:
        """Ask the issuer, unless that was done within some seconds, or is being done: one that is slow holds one."""
        with self._lock:
            if monotonic() - self._asked_at < seconds:
                return
            self._asked_at = float("inf")
        try:
            endpoints = self._get(f"{self._settings.issuer.rstrip('/')}/.well-known/openid-configuration")
            if (name := endpoints.get("issuer")) != self._settings.issuer:
                raise self._wrong(f"the issuer calls itself {name!r}")
            safe = ("https://", f"{self._settings.issuer.partition(':')[0]}://")
            if wrong := [each for each in _NEEDED if not str(endpoints.get(each)).startswith(safe)]:
                raise self._wrong(f"{wrong[0]} of the issuer is {endpoints.get(wrong[0])!r}")
            self._keys = _read_keys(self._get(endpoints["jwks_uri"])["keys"])
            self._endpoints, self._fault = endpoints, None
        except FeedAssetsError as exc:
            self._fault = exc
        except (OSError, *_MALFORMED) as exc:
            self._fault = self._away(exc)
        finally:
            self._asked_at = monotonic()

    def _get(self, address: str) -> Mapping[str, Any]:
        with requests.get(address, timeout=_PATIENCE, allow_redirects=False, stream=True) as answer:
            if 300 <= answer.status_code < 500:
                raise self._wrong(f"{address} answers {answer.status_code}")
            answer.raise_for_status()
            return dict(parse_json(answer.raw.read(_LARGEST, decode_content=True)))

    def _away(self, error: Exception | None) -> ServiceAwayError:
        reason = f"it does not answer as an issuer does ({type(error).__name__})"
        next_step = "Log in later, or with a token. Who is logged in goes on."
        return ServiceAwayError(service=f"the issuer {self.host}", reason=reason, next_step=next_step)

    def _wrong(self, reason: str) -> SettingsError:
        next_step = "Write the issuer as its own configuration has it."
        return SettingsError(setting="oidc.issuer", reason=reason, tried=self._tried, next_step=next_step)


def _read_keys(told: Iterable[Any]) -> KeySet:
    """Return the keys that sign as is wanted. Others, and those that cannot be read, are left out (RFC 7517, 5).

    Raises:
        ValueError: none is left.
    """
    keys = list[Any]()
    for each in told:
        with suppress(*_MALFORMED):
            keys += [JWKRegistry.import_key(each)] if each["kty"] in ("RSA", "EC") else []
    if not keys:
        raise ValueError
    return KeySet(keys)


def derive(secret: str, purpose: str) -> str:
    """Return what the issuer is told by the browser that has a secret, and by no other."""
    return hmac.digest(secret.encode(), purpose.encode(), "sha256").hex()


def refused(reason: str) -> RequestRefusedError:
    """Return that a log-in or a token is refused, and why."""
    return RequestRefusedError(HTTPStatus.UNAUTHORIZED, f"Nobody is logged in: {reason}.")
