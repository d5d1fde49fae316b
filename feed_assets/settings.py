"""Settings: locations of definitions and state, and defaults.

A setting comes from the command line (or the attributes of a component), else from `FEED_ASSETS_…` of the environment,
else from the settings file, else from its default. The settings file is the first of

1. the file that `FEED_ASSETS_SETTINGS` names;
2. `feed_assets.yaml` in the folder of the code location, or in the nearest folder above it: the `folder` of
   `build_definitions`, else that of the module that calls it, or the root of the project of a component;
3. `feed_assets.yaml` in the working directory, or in the nearest folder above it, unless that folder was named;
4. for a command with paths: `feed_assets.yaml` in the folder of a path, or in the nearest folder above it.

The project is the folder of this file; without a file, the first folder in which it was looked for.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from enum import StrEnum
from itertools import takewhile
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, get_args

import yaml
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError, field_validator

from feed_assets.errors import SettingsError
from feed_assets.masking import remember
from feed_assets.receivers import NAME, Channel, MailSettings, ReceiverSettings
from feed_assets.setting_sections import (
    AccessSettings,
    AuditSettings,
    Authorization,
    CleanupSettings,
    ColoName,
    DemoSettings,
    MetadataSettings,
    OidcSettings,
    ReplaySettings,
    ServerSettings,
    SiteSettings,
    WebAddress,
)

ENV_PREFIX = "FEED_ASSETS_"
ENV_SETTINGS = "FEED_ASSETS_SETTINGS"
ENV_SERVER = "FEED_ASSETS_SERVER"
"""The server that commands ask, which is no setting of a project."""
ENV_VARIABLES = "FEED_ASSETS_VARIABLES__"
FILE_NAME = "feed_assets.yaml"
ENV_FILE = ".env"
"""Variables of a project, beside its settings file. Dagster's commands read it, too."""
STATE_FILE = "feed_assets.db"
"""The state in the home of a Dagster instance with SQLite."""
PROJECT_ROOT = "PROJECT_ROOT"
"""A variable that is always defined: the folder of the settings file, or the working directory."""

_EXPECTED = {
    "bool": "true or false",
    "string": "text",
    "string_pattern_mismatch": "letters a to z, digits and _, beginning with a letter, at most 40",
    "float": "a number",
    "greater": "above 0",
    "greater_than_equal": "at least 0",
    "less": "at most 1",
    "datetime": "a date and time with a time zone, such as 2013-11-01T00:00:00Z",
    "timezone": "a date and time with a time zone, such as 2013-11-01T00:00:00Z",
    "dict": "a map",
    "tuple": "a list, such as [a, b]",
    "url": "an address such as https://feeds.example.org",
    "https": "an address with https such as https://login.example.org",
    "header": "the name of a header of its own, such as X-Forwarded-User",
    "openid": "a list with openid, by which it is told who logs in",
    "duration": "a time such as hours(24), days(3) or months(3)",
    "colo": "the name of a colo: letters, digits, -, _ and .",
    "token": "a token: one word, as `token create` prints it",
    "ip": "an address or a network, such as 10.0.0.5 or 10.0.0.0/8",
    "value_error": "a list of KIND/NAME, such as feed/schema or */owner",
    "model": "a map",
}
"""The expected form of a value, by pydantic's error code or the beginning of it."""

_REFERENCE = re.compile(r"\$\{env:([A-Za-z_][A-Za-z0-9_]*)\}")  # ${env:HOOK_SECRET}

DEFAULT = "the default"
NAMESPACE = "^[a-z][a-z0-9_]{0,39}$"
"""The pattern of namespaces."""
DEFAULT_NAMESPACE = "default"
"""The namespace of projects without one, in questions about it."""
"""The source of a setting that nothing else has."""


_TWO_ROLES = "a front asks the servers of its colos, and has no colo itself"


class ScheduleMode(StrEnum):
    """Whether declared feeds and processes are scheduled automatically or by a command."""

    AUTOMATIC = "automatic"
    EXPLICIT = "explicit"


class DefinitionChanges(StrEnum):
    """The instances that a changed definition governs: those from now on, or all that have not ended."""

    FROM_NOW = "from-now"
    ALWAYS = "always"


class Actions(StrEnum):
    """Where records of actions go, unless to a file."""

    OFF = "off"
    STDERR = "stderr"


class Settings(BaseModel):
    """The settings in force; make them with `load_settings`.

    `entities` is a folder, a file or an fsspec URL; a relative path is below `root`. `variables` are the values of
    `${NAME}` in clusters. `state` is an SQLAlchemy URL; None means the database of the Dagster instance. With `strict`,
    a warning fails a validation. `schedule` applies to feeds and processes that no command has scheduled or suspended.
    `namespace` separates this project's tables from those of other projects in the same database: letters, digits and
    `_`, beginning with a letter. At most `unconfirmed_deletions` of the declared entities, as a share from 0 to 1, may
    disappear from the files at once without a confirmation. With `previews`, Dagster keeps the first rows of each
    published instance, unless its feed says otherwise. The schedule acts on a retention that became stricter after
    `retention_grace_hours`. A tick waits `tick_patience` seconds for storages, metastores and Spark Connect servers;
    what has not answered by then counts as away. `webserver` is the URL of Dagster's webserver, which commands ask to
    reload changed definitions. `notify` are the receivers of messages by name, and `mail` is the server for mails.
    `actions` is where records of actions go: `off`, `stderr` or a file, relative to `root`; None means a file beside
    the state. `cleanup` is how long captured logs are kept. `server` and `oidc` say who asks a server, and
    `authorization` whether `acl` and `access` say what they may; `audit` has the secret that chains what was done. A
    front asks the servers of `colos`. A server that has a `colo` works on the clusters there, and what its `front`
    declares, the user of that name.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    entities: str = "entities"
    variables: dict[str, str] = Field(default_factory=dict)
    state: str | None = None
    namespace: str | None = Field(default=None, pattern=NAMESPACE)
    unconfirmed_deletions: float = Field(default=0.5, ge=0, le=1)
    retention_grace_hours: float = Field(default=24, ge=0)
    tick_patience: float = Field(default=20.0, gt=0)
    strict: bool = False
    previews: bool = False
    schedule: ScheduleMode = ScheduleMode.AUTOMATIC
    definition_changes: DefinitionChanges = DefinitionChanges.FROM_NOW
    metadata: MetadataSettings = MetadataSettings()
    notify: dict[Annotated[str, Field(pattern=f"^{NAME.pattern}$")], ReceiverSettings] = Field(default_factory=dict)
    mail: MailSettings = MailSettings()
    cleanup: CleanupSettings = CleanupSettings()
    server: ServerSettings = ServerSettings()
    authorization: Authorization = Authorization.OFF
    access: AccessSettings = AccessSettings()
    audit: AuditSettings = AuditSettings()
    oidc: OidcSettings | None = None
    colos: dict[ColoName, SiteSettings] = Field(default_factory=dict)
    colo: ColoName | None = None
    front: str | None = Field(default=None, min_length=1)
    webserver: WebAddress | None = None
    actions: str | None = None
    demo: DemoSettings | None = None
    _root: Path = PrivateAttr(default_factory=Path.cwd)
    _file: Path | None = PrivateAttr(default=None)
    _tried: tuple[str, ...] = PrivateAttr(default=())
    _origins: dict[str, str] = PrivateAttr(default_factory=dict)

    @field_validator("actions", "authorization", mode="before")
    @classmethod
    def _is_switched_off(cls, value: object) -> object:
        return Actions.OFF.value if value is False else value  # `off` of YAML

    @property
    def root(self) -> Path:
        """The folder that relative paths start from."""
        return self._root

    @property
    def file(self) -> Path | None:
        """The settings file; None if there is none."""
        return self._file

    @property
    def tried(self) -> tuple[str, ...]:
        """The sources in which every setting was looked for, the strongest first."""
        return self._tried

    def origin_of(self, name: str) -> str:
        """Return the source of the value of a setting, such as `entities` or `variables.DATA_ROOT`."""
        return self._origins.get(name, DEFAULT)

    @property
    def entities_location(self) -> str:
        """`entities` as an absolute path or URL."""
        return self.entities if "://" in self.entities else str(self._root / self.entities)

    @property
    def cluster_variables(self) -> dict[str, str]:
        """`variables`, with `${PROJECT_ROOT}` in their values replaced, and `PROJECT_ROOT` itself."""
        root = str(self._root)
        values = {name: value.replace(f"${{{PROJECT_ROOT}}}", root) for name, value in self.variables.items()}
        return {PROJECT_ROOT: root, **values}

    @property
    def retention_grace(self) -> timedelta:
        """`retention_grace_hours` as a duration."""
        return timedelta(hours=self.retention_grace_hours)

    @property
    def works_in(self) -> str | None:
        """The colo on whose clusters it works; None for all, and of a front "", which is no colo."""
        return "" if self.colos else self.colo

    @property
    def code_root(self) -> Path | None:
        """The folder in which files of workflows are looked for; None if they are those of other servers."""
        return None if self.colos else self._root

    @property
    def tells_lineage(self) -> bool:
        """Whether a receiver gets the lineage, so that messages about it are written."""
        return any(each.channel is Channel.OPENLINEAGE for each in self.notify.values())

    @property
    def replay(self) -> ReplaySettings | None:
        """The replay settings of the demo, if any."""
        return self.demo.replay if self.demo else None


def load_settings(
    overrides: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    start: Path | Sequence[Path] | None = None,
) -> Settings:
    """Read the settings: `overrides`, then `FEED_ASSETS_…` of the environment, then the settings file, then defaults.

    The file is the one that `FEED_ASSETS_SETTINGS` names, else the first `feed_assets.yaml` that is found in a folder
    of `start` or in the nearest folder above it. In names of variables, `__` separates a section from its setting:
    `FEED_ASSETS_DEMO__REPLAY__SPEED`.

    Args:
        overrides: settings by name, from a command line.
        environ: the environment; that of the process if None.
        start: the folder in which the search for the file begins, or several, one after the other; the working
            directory if None.

    Raises:
        SettingsError: a setting is unknown or wrong, or the file cannot be read.
    """
    environ = os.environ if environ is None else environ
    folders = [start] if isinstance(start, Path) else list(start or [Path.cwd()])
    folders = list(dict.fromkeys(folder.resolve() for folder in folders))
    file = _find_file(environ, folders)
    tried = _sources_tried(file, folders)
    sources = [
        dict(overrides or {}),
        _read_environment(environ),
        {} if file is None else _read_file(file),
    ]
    try:
        settings = Settings(**_merged(sources))
    except ValidationError as exc:
        raise _settings_error(exc, tried) from exc
    settings._root = folders[0] if file is None else file.parent
    settings._file, settings._tried = file, tried
    for source, name in reversed(list(zip(sources, tried, strict=False))):
        settings._origins.update(dict.fromkeys((leaf for leaf, _ in iter_values(source)), name))
    _require_one_role(settings)
    return settings


def _require_one_role(settings: Settings) -> None:
    for is_wrong, name, reason, next_step in (
        (settings.colos and (settings.colo or settings.front), "colos", _TWO_ROLES, "Leave colo and front out there."),
        (settings.front and not settings.colo, "colo", "it is missing, and front is there", "Set it: of which colo."),
    ):
        if is_wrong:
            raise SettingsError(setting=name, reason=reason, tried=settings.tried, next_step=next_step)


def iter_values(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Yield every value of nested settings by its whole name, such as `variables.DATA_ROOT`."""
    for name, value in values.items():
        if isinstance(value, dict):
            yield from iter_values(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _read_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings in the given environment, not in that of the process; names of `variables` keep their case.

    Measured: the package that reads them takes 30 ms to import, and few environments have any.
    """
    ours = {name.lower(): value for name, value in environ.items() if name not in (ENV_SETTINGS, ENV_SERVER)}
    if not any(name.startswith(ENV_PREFIX.lower()) for name in ours):
        return {}
    from pydantic_settings import EnvSettingsSource
    from pydantic_settings.exceptions import SettingsError as SourceError

    source = EnvSettingsSource(Settings, env_prefix=ENV_PREFIX, env_nested_delimiter="__")  # type: ignore[arg-type]
    source.env_vars = ours
    try:
        values = source()
    except (SourceError, RecursionError) as exc:
        text = getattr(exc.__cause__, "doc", None)
        name = next((name for name in environ if text is not None and ours.get(name.lower()) == text), "environment")
        raise SettingsError(
            setting=name,
            reason=f"a {ENV_PREFIX}… variable cannot be read as JSON: {exc.__cause__ or exc}",
            tried=(),
            next_step='Write lists as JSON, ["a", "b"], and maps, too, or one variable for each value: __ parts names.',
        ) from exc
    prefix = ENV_VARIABLES
    named = {name.removeprefix(prefix): text for name, text in environ.items() if name.startswith(prefix)}
    if named:
        lowered = {name.lower() for name in named}
        others = {name: text for name, text in values.get("variables", {}).items() if name not in lowered}
        values["variables"] = {**others, **named}
    return values


def resolve_references(
    setting: str, text: str | None, environ: Mapping[str, str], tried: tuple[str, ...] = ()
) -> str | None:
    """Return a text with the values of the variables that it names, which are hidden from now on.

    Raises:
        SettingsError: the environment lacks one.
    """

    def value_of(found: re.Match[str]) -> str:
        name = found[1]
        if name not in environ:
            reason, next_step = f"the environment has no {name}", "Set the variable, or write another."
            raise SettingsError(setting=setting, reason=reason, tried=tried, next_step=next_step)
        remember(environ[name], name)
        return environ[name]

    return None if text is None else _REFERENCE.sub(value_of, text)


def find_settings_file(folder: Path) -> Path | None:
    """Return the settings file in a folder or in the nearest folder above it; None if there is none."""
    return next((file for place in (folder, *folder.parents) if (file := place / FILE_NAME).is_file()), None)


@contextmanager
def project_environment(folder: Path) -> Iterator[None]:
    """Set the variables of the project's `.env` during the context. As in Dagster, they override the environment.

    The project is the nearest folder, from `folder` upwards, that has settings; `folder` itself if none has.
    """
    settings = find_settings_file(folder)
    file = (folder if settings is None else settings.parent) / ENV_FILE
    if not file.is_file():
        yield
        return
    from dotenv import dotenv_values

    values = {name: value for name, value in dotenv_values(file).items() if value is not None}
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _find_file(environ: Mapping[str, str], folders: Sequence[Path]) -> Path | None:
    named = environ.get(ENV_SETTINGS)
    if named is None:
        return next((file for folder in folders if (file := find_settings_file(folder)) is not None), None)
    file = (folders[0] / named).resolve()
    if not file.is_file():
        raise SettingsError(
            setting=ENV_SETTINGS,
            reason=f"the file {named!r} does not exist",
            tried=(str(file),),
            next_step="Correct the path, or unset the variable.",
        )
    return file


def _read_file(file: Path) -> dict[str, Any]:
    try:
        values = yaml.safe_load(file.read_text("utf-8"))
    except (yaml.YAMLError, OSError, UnicodeDecodeError, RecursionError) as exc:
        reason = " ".join(str(exc).split())
        raise SettingsError(
            setting=file.name, reason=f"cannot be read: {reason}", tried=(str(file),), next_step="Correct the file."
        ) from exc
    if values is None:
        return {}
    if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
        raise SettingsError(
            setting=file.name,
            reason="it is not a map",
            tried=(str(file),),
            next_step="Write lines of the form name: value.",
        )
    return values


def _merged(sources: list[dict[str, Any]]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for source in sources:
        for name, value in source.items():
            if isinstance(value, dict) and isinstance(merged.get(name), dict):
                merged[name] = _merged([merged[name], value])
            else:
                merged.setdefault(name, value)
    return merged


def _sources_tried(file: Path | None, folders: Sequence[Path]) -> tuple[str, ...]:
    places = " and above, then ".join(str(folder) for folder in folders)
    place = str(file) if file else f"{FILE_NAME} in {places} and above (not found)"
    return ("the command line", f"{ENV_PREFIX}… in the environment", place, DEFAULT)


def _settings_error(error: ValidationError, tried: tuple[str, ...]) -> SettingsError:
    first = error.errors(include_url=False)[0]
    path = [str(part) for part in first["loc"]]
    variable = ENV_PREFIX + "__".join(takewhile(lambda part: not part.isdecimal(), path)).upper()  # a list is one
    if first["type"] == "extra_forbidden":
        section = ".".join(path[:-1])
        known = f"Settings{section and f' of {section}'} are {', '.join(_list_known(path[:-1]))}."
        return SettingsError(setting=".".join(path), reason="there is no such setting", tried=tried, next_step=known)
    choices = first.get("ctx", {}).get("expected") if first["type"] in ("enum", "receiver") else None
    code = first["type"]
    expected = choices or _EXPECTED.get(code) or _EXPECTED.get(code.partition("_")[0], "another value")
    is_secret = first["type"] == "receiver" or path[0] == "colos"  # a URL may have secrets
    shown = "its value" if is_secret else repr(first["input"])
    reason = "it is missing" if first["type"] == "missing" else f"{shown} is not {expected}"
    next_step = f"Set it in {FILE_NAME}, or as {variable}."
    return SettingsError(setting=".".join(path), reason=reason, tried=tried, next_step=next_step)


def _list_known(section: Sequence[str]) -> list[str]:
    """Return the names of the settings of a section, such as `server.proxy_users.portal`."""
    kind: Any = Settings
    for part in section:
        kind = kind.model_fields[part].annotation if hasattr(kind, "model_fields") else get_args(kind)[-1]
        kind = get_args(kind)[0] if NoneType in get_args(kind) else kind
    return sorted(kind.model_fields)
