"""Replace `${env:NAME}` in all entities and `${NAME}` in clusters with outside values, before validation.

Every other `${…}` (paths, expressions) is left alone; `$${` is a literal `${`.
"""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from feed_assets.issues import FieldPath
from feed_assets.masking import remember
from feed_assets.settings import ENV_VARIABLES, FILE_NAME, Settings

_REFERENCE = re.compile(r"(\$?)\$\{(env:)?([A-Za-z_][A-Za-z0-9_]*)\}")  # ${env:SECRET}, ${DATA_ROOT}, $${literal}


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingValue:
    """A reference without a value: its path, its name, and whether only an environment variable can supply it."""

    path: FieldPath
    name: str
    is_environment: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """The sources of values: first the variables of the settings, then the environment.

    `settings_file` describes the file of the variables.
    """

    variables: Mapping[str, str]
    environ: Mapping[str, str]
    settings_file: str = FILE_NAME

    def find(self, name: str, *, is_environment: bool) -> str | None:
        """Return the value of `${env:name}` or `${name}`; None if there is none. The first is a secret from now on."""
        if not is_environment and name in self.variables:
            return self.variables[name]
        found = self.environ.get(name)
        if is_environment and found is not None:
            remember(found, name)
        return found

    def places_tried(self, name: str) -> tuple[str, ...]:
        """Return where the value of `${name}` is looked for, the strongest first."""
        in_settings = (f"{ENV_VARIABLES}{name} in the environment", f"variables in {self.settings_file}")
        return (*in_settings, f"{name} in the environment")

    def iter_used(self, text: str) -> Iterator[tuple[str, str | None]]:
        """Yield each reference of the text with its value, for digests.

        May include references that feed-assets does not resolve.
        """
        found = {(reference[2] or "", reference[3]) for reference in _REFERENCE.finditer(text)}
        for prefix, name in sorted(found):
            yield f"{prefix}{name}", self.find(name, is_environment=bool(prefix))


def values_of(settings: Settings, environ: Mapping[str, str] | None = None) -> Values:
    """Return the values of references by the settings; None is the environment of this process."""
    file = str(settings.file) if settings.file else f"{FILE_NAME} (not found in {settings.root} and above)"
    environ = os.environ if environ is None else environ
    return Values(variables=settings.cluster_variables, environ=environ, settings_file=file)


def escape_references(value: Any, *, with_variables: bool) -> Any:
    """Escape plain values so that `Interpolation` returns them unchanged.

    >>> escape_references({"storage": "file:///${ROOT}"}, with_variables=True)
    {'storage': 'file:///$${ROOT}'}
    """
    if isinstance(value, str):
        return _REFERENCE.sub(lambda found: f"${found[0]}" if found[2] or with_variables else found[0], value)
    if isinstance(value, dict):
        return {key: escape_references(item, with_variables=with_variables) for key, item in value.items()}
    if isinstance(value, list):
        return [escape_references(item, with_variables=with_variables) for item in value]
    return value


class Interpolation:
    """Replacement of references in the plain values of one document.

    Records the references without a value.

    >>> filled = Interpolation(Values(variables={"ROOT": "/data"}, environ={}), with_variables=True)
    >>> filled.fill({"storage": "file://${ROOT}", "data": "$${YEAR}"})
    {'storage': 'file:///data', 'data': '${YEAR}'}
    """

    def __init__(self, values: Values, *, with_variables: bool) -> None:
        self._values = values
        self._with_variables = with_variables
        self._missing: dict[MissingValue, None] = {}

    @property
    def missing(self) -> tuple[MissingValue, ...]:
        """The references without a value, each once per path."""
        return tuple(self._missing)

    def fill(self, value: object, path: FieldPath = ()) -> object:
        """Return a copy of plain values with references replaced. Keys are not changed."""
        if isinstance(value, str):
            return self._fill_text(value, path) if "${" in value else value
        if isinstance(value, dict):
            return {key: self.fill(item, (*path, key)) for key, item in value.items()}
        if isinstance(value, list):
            return [self.fill(item, (*path, position)) for position, item in enumerate(value)]
        return value

    def _fill_text(self, text: str, path: FieldPath) -> str:
        def value_of(found: re.Match[str]) -> str:
            escaped, prefix, name = found.groups()
            if not prefix and not self._with_variables:
                return found.group()
            if escaped:
                return found.group()[1:]
            known = self._values.find(name, is_environment=bool(prefix))
            if known is None:
                missing = MissingValue(path=path, name=name, is_environment=bool(prefix))
                self._missing.setdefault(missing)
            return known or ""

        return _REFERENCE.sub(value_of, text)
