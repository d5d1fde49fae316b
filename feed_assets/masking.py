"""Hide secrets in text that leaves the program: what is printed, recorded, logged or given to Dagster.

Secrets are the values of `${env:NAME}`, shown as `${env:NAME}`; credentials that are written in clear text, shown as
`***`; and whatever stands where a password stands in a URL. The first two are remembered where they are read. Values
with fewer than 3 characters are not hidden, and those with fewer than 8 only as whole words.
"""

import json
import logging
import re
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from threading import Lock
from typing import Any
from urllib.parse import quote, quote_plus, urlsplit

HIDDEN = "***"
"""What is shown for a secret without a name."""
TOKEN_PREFIX = "fa_"
"""How tokens of a server begin, so that they are known wherever they stand."""
_TOKEN = re.compile(rf"{TOKEN_PREFIX}[0-9a-f]{{64}}")
_revealed: ContextVar[str] = ContextVar("revealed", default="")
_SHORTEST_SECRET = 3
_SHORTEST_PART = 8
_WORDS = frozenset({"password", "passwd", "pwd", "passphrase", "secret", "token", "apikey", "credential", "sig"})
_PAIRS = frozenset(
    {("secret", "key"), ("access", "key"), ("account", "key"), ("private", "key"), ("api", "key"), ("shared", "key")}
)
_NAME_PART = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")  # fs.s3a.secret.key, sasToken, DB_PASSWORD
_USER = re.compile(
    r"""(://[^\s/:@]*:)(?![^\s/@]*\$\{)(?:[^\s/@]+(?:@[^\s/@?#'"`<>()]*)*|(?!\d{1,5}[^\w+=.-])[^\s@'"`<>()]+)(?=@)"""
)  # ://user:password@ and ://KEY:SE/CRET@, but not ${env:NAME}, and not ://host:8080/a@b
_NAMES = (
    r"(?=[apst])(?:passw(?:or)?d|pwd|passphrase|\bsig(?:nature)?|token|secret(?:[._-]?key)?|"
    r"(?:access|account|private|api|shared)[._-]?key)(?:\.[\w.-]++)?+"
)
_HINTS = ("passw", "pwd", "passph", "secret", "token", "sig", "key")  # looked for first: that takes no time
_IN_URL = re.compile(  # ;trustStorePassword=x; what is hidden already and quoted stays
    rf"({_NAMES}=)(?!\*\*\*[\"'\]])(?:'[^']*'|\"[^\"]*\"|[^;&\s]+)", re.IGNORECASE
)
_IN_SQL = re.compile(
    rf"""({_NAMES}['"`]?+\s*+(?:=>|==?)?+\s*+)(?:'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")""", re.IGNORECASE
)  # OPTIONS (password 'x')
_JDBC = "jdbc:"
_SET = re.compile(rf"(\bset\s+[\w.-]*{_NAMES}\s*+=\s*+)[^;\s]+", re.IGNORECASE)  # SET fs.s3a.secret.key = x
_NO_SECRET = re.compile(r"(?i:true|false|none|null)|\d{0,5}|([a-z]\w*\.)+[A-Z]\w*", re.ASCII)  # also Java classes


class _Secrets:
    """The secrets of this process, and the names of the variables that have them; None for clear text."""

    def __init__(self) -> None:
        self.names: dict[str, str | None] = {}
        self.by_form: dict[str, str] = {}
        self._pattern: re.Pattern[str] | None = None
        self._lock = Lock()

    def add(self, value: str, name: str | None) -> None:
        if len(value) < _SHORTEST_SECRET or (value in self.names and name in (None, self.names[value])):
            return
        with self._lock:
            self.names[value] = name
            self.by_form.update(dict.fromkeys(_forms(value), value))
            self._pattern = None

    def pattern(self) -> re.Pattern[str] | None:
        """Return the pattern of all forms of all secrets, compiled when it is needed; None if there are none."""
        if self._pattern is None and self.by_form:
            with self._lock:
                longest_first = sorted(self.by_form, key=len, reverse=True)
                self._pattern = re.compile("|".join(map(_pattern, longest_first)))
        return self._pattern

    def shown(self, form: str) -> str:
        name = self.names[self.by_form[form]]
        return HIDDEN if name is None else f"${{env:{name}}}"


_secrets = _Secrets()


def remember(value: str, name: str) -> None:
    """Hide the value of an environment variable from now on, in all threads of this process."""
    _secrets.add(value, name)


def remember_unnamed(value: str) -> None:
    """Hide a secret that has no name, such as a password out of a file."""
    _secrets.add(value, None)


def remember_credentials(values: object, environ: Mapping[str, str] | None = None) -> None:
    """Hide the credentials among plain values from now on.

    Those that are values of the given environment have its names; the others are in clear text.
    """
    names = {value: name for name, value in (environ or {}).items()}
    for _, value in iter_credentials(values):
        _secrets.add(value, names.get(value))


def iter_credentials(values: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield the path and the text of each credential among plain values: what has a name like that of a password, and
    the passwords in a URL, of the user or as parameters. References are left out.

    >>> list(iter_credentials({"options": {"user": "a", "secret": "b", "token": "${env:TOKEN}"}}))
    [(('options', 'secret'), 'b')]
    >>> [text for _, text in iter_credentials(["jdbc:mysql://a:b@host/shop", "jdbc:derby:shop;user=me;password=c"])]
    ['b', 'c']
    """
    if isinstance(values, Mapping):
        for key, value in values.items():
            yield from iter_credentials(value, (*path, key))
    elif isinstance(values, list | tuple):
        for position, value in enumerate(values):
            yield from iter_credentials(value, (*path, position))
    elif isinstance(values, str) and "${" not in values:
        if path and is_name_of_credential(str(path[-1])) and not _NO_SECRET.fullmatch(values):
            yield path, values
        elif "://" in values or values.startswith(_JDBC):
            yield from ((path, password) for password in _passwords_of(values))


@lru_cache(maxsize=10_000)
def is_name_of_credential(name: str) -> bool:
    """Return whether an option of this name contains a password, a key or a token; `key` alone is that of S3.

    >>> [is_name_of_credential(name) for name in ("fs.s3a.secret.key", "sasToken", "password_file")]
    [True, True, False]
    """
    parts = [part.lower() for part in _NAME_PART.findall(name)]
    return parts == ["key"] or (bool(parts) and (parts[-1] in _WORDS or not _PAIRS.isdisjoint(pairwise(parts))))


def _passwords_of(url: str) -> Iterator[str]:
    """Yield the password of the user, and those among the parameters of a URL."""
    with suppress(ValueError):
        yield from filter(None, [urlsplit(url.removeprefix(_JDBC)).password])
    for found in _IN_URL.finditer(url):
        value = found[0].removeprefix(found[1])
        if not _NO_SECRET.fullmatch(value):
            yield value


def reveal(token: str) -> None:
    """Show a new token of a server, which nobody else can tell, until the command or the request ends."""
    _revealed.set(token)


def is_named(secret: str) -> bool:
    """Return whether a text is the value of an environment variable that was referred to."""
    return _secrets.names.get(secret) is not None


def encodable(text: str) -> str:
    r"""Return a text in which each lone surrogate and each NUL is an escape, so that it can be written anywhere.

    Lone surrogates stand for the bytes of file names that are not UTF-8. PostgreSQL and C keep no NUL.

    >>> encodable(b"part-\xff".decode("utf-8", "surrogateescape"))
    'part-\\udcff'
    """
    if "\0" in text:
        text = text.replace("\0", "\\x00")
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def mask(text: str) -> str:
    """Return an encodable text without secrets.

    >>> mask("cannot open sftp://me:abc@host/x?token=123")
    'cannot open sftp://me:***@host/x?token=***'
    >>> mask("postgresql://me:a@b@c@host/x?to=you@there")
    'postgresql://me:***@host/x?to=you@there'
    >>> mask("OPTIONS (user 'a', password 'x')"), mask("SET aws_secret_access_key = x"), mask("s3://KEY:SE/CRET@b")
    ("OPTIONS (user 'a', password '***')", 'SET aws_secret_access_key = ***', 's3://KEY:***@b')
    >>> mask(f"curl -H 'Authorization: Bearer fa_{'0a' * 32}'")
    "curl -H 'Authorization: Bearer fa_***'"
    """
    text = encodable(text)
    if (pattern := _secrets.pattern()) is not None:
        text = pattern.sub(lambda found: _secrets.shown(found[0]), text)
    if TOKEN_PREFIX in text:
        text = _TOKEN.sub(lambda found: found[0] if found[0] == _revealed.get() else TOKEN_PREFIX + HIDDEN, text)
    small = text.lower()
    if any(part in small for part in _HINTS):
        text = _IN_SQL.sub(rf"\1'{HIDDEN}'", _SET.sub(rf"\1{HIDDEN}", _IN_URL.sub(rf"\1{HIDDEN}", text)))
    return _USER.sub(rf"\1{HIDDEN}", text) if "@" in text else text


def mask_values(values: Any) -> Any:
    """Return plain values whose texts are encodable and without secrets; keys keep theirs, and numbers stay. What has a
    name like that of a password is hidden, but for references and S3's `key`, which is a plain name elsewhere.

    >>> mask_values({"sasToken": "x", "pwd": 4711, "password": "${env:DOOR}", "key": "a", "credential": {"user": "me"}})
    {'sasToken': '***', 'pwd': '***', 'password': '${env:DOOR}', 'key': 'a', 'credential': {'user': 'me'}}
    """
    if isinstance(values, str):
        return mask(values)
    if isinstance(values, Mapping):
        return {
            encodable(key) if isinstance(key, str) else key: HIDDEN if _is_secret(key, value) else mask_values(value)
            for key, value in values.items()
        }
    if type(values) in (list, tuple):  # a record of Dagster is a tuple, too
        return [mask_values(value) for value in values]
    return values


def _is_secret(name: object, value: object) -> bool:
    is_plain = isinstance(value, int | float) and not isinstance(value, bool)
    return (
        (is_plain or (isinstance(value, str) and value != "" and "${" not in value))
        and isinstance(name, str)
        and name != "key"
        and is_name_of_credential(name)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretPart:
    """A part of a text that is the value of an environment variable, in one of its forms (in JSON, in a URL)."""

    name: str
    form: int

    def restore(self, environ: Mapping[str, str]) -> str:
        """Return the part of the text. Raises `KeyError` if the environment has no such variable."""
        return _forms(environ[self.name])[self.form]


def split_secrets(text: str) -> list[str | SecretPart] | None:
    """Return the parts of a text that can be stored, because values of environment variables are only named; None if
    it contains no such value.
    """
    pattern = _secrets.pattern()
    parts: list[str | SecretPart] = []
    end = 0
    for found in pattern.finditer(text) if pattern else ():
        secret = _secrets.by_form[found[0]]
        name = _secrets.names[secret]
        if name is not None:
            parts += [text[end : found.start()], SecretPart(name=name, form=_forms(secret).index(found[0]))]
            end = found.end()
    return [*parts, text[end:]] if parts else None


def mask_logs(of: logging.Logger | logging.Handler) -> None:
    """Hide secrets in the messages and tracebacks that a logger or handler gets."""
    of.addFilter(_mask_record)


def get_logger(name: str) -> logging.Logger:
    """Return the logger of a module; its messages and tracebacks are without secrets."""
    logger = logging.getLogger(name)
    mask_logs(logger)
    return logger


def text_of(error: BaseException) -> str:
    """Return the text of an error, whatever its own code does when it is asked for it, such as `sys.exit`."""
    try:
        return str(error)
    except BaseException as exc:  # noqa: BLE001 - code of users
        return f"its text cannot be read, because reading it raises {type(exc).__name__}"


def format_error(error: BaseException) -> str:
    """Return the traceback of an error, with those of its causes, without secrets."""
    return mask("".join(traceback.format_exception(error)))


@contextmanager
def masked_errors() -> Iterator[None]:
    """Hide secrets in the messages of what is raised inside, and of its causes. For what others will print."""
    try:
        yield
    except BaseException as exc:
        for error in _iter_chain(exc):
            if (masked := mask(text := text_of(error))) != text:
                error.args = (masked,)
        raise


def _iter_chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    pending = [error]
    while pending:
        found = pending.pop()
        if found is not None and id(found) not in seen:
            seen.add(id(found))
            yield found
            pending += [found.__cause__, found.__context__]


def _mask_record(record: logging.LogRecord) -> bool:
    record.msg, record.args = mask(record.getMessage()), ()
    if record.exc_info and record.exc_info[1] is not None:
        record.exc_text = format_error(record.exc_info[1])
    return True


def _forms(secret: str) -> Sequence[str]:
    """Return a secret as it can occur in texts: itself, its lines, in JSON, in `repr` and in a URL."""
    lines = [line for line in secret.splitlines() if len(line) >= _SHORTEST_PART]
    in_json = (json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1])
    return (secret, *lines, *in_json, repr(secret)[1:-1], quote(secret, safe=""), quote(secret), quote_plus(secret))


def _pattern(form: str) -> str:
    if len(form) >= _SHORTEST_PART:
        return re.escape(form)
    return rf"(?<![A-Za-z0-9]){re.escape(form)}(?![A-Za-z0-9])"
