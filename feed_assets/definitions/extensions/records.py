"""Extensions: recipes that make entities of parameters, and the jobs that they have made, as people read them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict

from feed_assets.entities.fields import Name
from feed_assets.entities.maps import EMPTY
from feed_assets.issues import FieldPath
from feed_assets.json_form import Hidden, shown, shows
from feed_assets.loading.job_files import Job

RECIPE = "extension.yaml"
README = "README.md"
BUILD = "build.py"
ENTITIES = "entities/"


class ParameterType(StrEnum):
    """What a parameter is, by the names of JSON Schema."""

    STRING = "string"
    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"
    ARRAY = "array"
    OBJECT = "object"


class RecipeParameter(BaseModel):
    """What can be given to a recipe. It is required unless it has a default or says otherwise."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    type: ParameterType = ParameterType.STRING
    description: str = ""
    required: bool | None = None
    default: Any = None
    example: Any = None

    @property
    def is_required(self) -> bool:
        """Whether it must be given."""
        return self.default is None if self.required is None else self.required


class Recipe(BaseModel):
    """The file `extension.yaml`. With `other_parameters`, its function also takes texts by other names."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    kind: ClassVar[str] = "extension"
    derived_keys: ClassVar[Mapping[str, FieldPath]] = EMPTY

    name: Name
    description: str = ""
    parameters: Mapping[str, RecipeParameter] = EMPTY
    other_parameters: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Extension:
    """An extension: its recipe, and its files by their paths. `made_by` names its version: the digest of what is
    registered, else a package and its version; `module` is the folder of that package.
    """

    recipe: Recipe
    made_by: str
    is_enabled: bool
    files: Mapping[str, bytes]
    module: str | None = None

    @property
    def name(self) -> str:
        """Its name."""
        return self.recipe.name


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownParameter:
    """A parameter; the default and the example are None if there is none."""

    name: str
    type: ParameterType
    required: bool
    default: Any
    example: Any
    description: str


@shows("extension", "name, made_by, description=recipe.description")
@dataclass(frozen=True, slots=True, kw_only=True)
class ShownExtension:
    """An extension with its parameters; `jobs` are the names of those that it has made."""

    extension: Hidden[Extension]
    jobs: tuple[str, ...]

    @shown
    def status(self) -> str:
        """Whether it is enabled, or cannot be used."""
        if not self.extension.files:
            return "broken"
        return "enabled" if self.extension.is_enabled else "disabled"

    @shown
    def parameters(self) -> tuple[ShownParameter, ...]:
        """What can be given to it."""
        given = self.extension.recipe.parameters.items()
        return tuple(
            ShownParameter(**{**dict(each), "name": name, "required": each.is_required}) for name, each in given
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEntity:
    """An entity of a job; the status of one with errors is `ERROR`."""

    kind: str
    name: str
    status: str


@shows("job", "name, extension, made_by, parameters")
@dataclass(frozen=True, slots=True, kw_only=True)
class ShownJob:
    """A job. It is `current` if its extension is there in the version that has made it."""

    job: Hidden[Job]
    current: bool
    file: str
    entities: tuple[JobEntity, ...]

    @property
    def notes(self) -> tuple[str, ...]:
        """What has made it, and of what."""
        given = (f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in self.job.parameters.items())
        return (f"{self.file}: made by {self.job.extension}, {self.job.made_by}, of", *given)
