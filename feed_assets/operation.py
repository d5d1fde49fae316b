"""What people and programs can ask for: each operation is a typed function, declared once in a module `commands`.

The command, its table, CSV and JSON, the reference, the list of operations, routes and rights are derived from the
declaration. The function stays the plain function that it is: the declaration hides no call.
"""

import ast
import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import KW_ONLY, dataclass, is_dataclass, replace
from enum import StrEnum
from functools import cached_property
from importlib import import_module
from textwrap import dedent
from types import ModuleType, NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

GIVEN = frozenset({"author", "dry_run", "progress", "confirm"})
"""Parameters that need no `Param`: who asks, whether nothing is to be changed, what is told of the progress, and what
asks a person (see `Confirm`). A context of changes has the first two."""

DECLARATION = "__operation__"
ROUTES = "/api/v1"
_OF_SITES = frozenset(f"entity {each}" for each in ("schedule", "suspend", "resume", "touch", "status", "summary"))
WRITES_FILES = "It writes files where it runs."
WORKS_LONG = "It may take minutes."
RUNS_CODE = "It runs code of the project."
Confirm = Callable[[str], None]
"""Asks a question that ends a text. It returns if the answer is yes."""
_Function = TypeVar("_Function", bound=Callable[..., Any])


class Does(StrEnum):
    """What an operation does. What does not only read takes `dry_run`; what does more than notify, `author`, too."""

    READS = "reads"
    NOTIFIES = "notifies"
    ACTS = "acts"
    DECLARES = "declares"
    ADMINISTERS = "administers"


@dataclass(frozen=True, slots=True)
class Param:
    """What a parameter means beside its type: `Annotated[datetime, Param("From this time on.")]`."""

    help: str = ""
    argument: bool = False
    """Whether it is given by its place; else it is an option."""
    option: str = ""
    """The name of the option, if it is not that of the parameter."""
    of: Collection[str] = ()
    """Of a name: the kinds of entities that have it. Of a kind: those that are possible."""
    proposes: str = ""
    """What else a shell proposes: entities (paths), holds, sweeps and so on (see `cli/options.py`)."""
    least: int | None = None
    """The smallest number."""
    commas: bool = False
    """Whether several values are one text with commas; else the option is repeated."""
    file: bool = False
    """Whether it is a file of the caller."""
    default: str | None = None
    """What a person need not give, as text; for callers in Python it is required."""
    metavar: str | None = None
    """How help calls its value."""
    local: bool = False
    """Whether only a command has it: it names a place on this machine, or its answer has no end."""
    needs: Does | None = None
    """The right that a request needs, too, which gives it to what only reads: with it, something is recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A parameter of an operation; `type` is that of one value, if there may be several."""

    name: str
    type: Any
    is_several: bool
    is_required: bool
    default: Any
    param: Param

    @property
    def choices(self) -> tuple[str, ...]:
        """The values of a closed set; none of an open one."""
        if get_origin(self.type) is Literal:
            return get_args(self.type)
        is_enum = isinstance(self.type, type) and issubclass(self.type, StrEnum)
        return tuple(self.param.of or self.type) if is_enum else ()


@dataclass(frozen=True)
class Operation:
    """The declaration of a function: `@operation("sla history", …)` attaches it, and changes nothing else.

    A parameter of the function is `Annotated[…, Param(…)]`, or a query: a dataclass whose fields are such parameters.
    Only a first one may have a type in quotes: a context, which whoever calls it opens.
    """

    name: str
    """The words of the command."""
    _: KW_ONLY
    does: Does = Does.READS
    safe: bool = False
    """Whether safe mode lets go on what does more than notify: it stops work, only plans, or only says something; or
    its function asks, because safe mode allows a part of what it does."""
    table: str = ""
    """The columns, as `print_records` takes them: `name, instance=nominal_time, level=level:upper`. Without them the
    result is a text."""
    above: tuple[str, str] = ("", "")
    """An attribute of the result with other rows, and their columns: a table above, in the form for people."""
    rows: str = ""
    """The attribute of the result with the rows; if it has no such attribute, the name of the result in JSON."""
    text: str = ""
    """The attribute of the result, or of each of its rows, with its text or its lines."""
    plain: bool = False
    """Whether the text has a form of its own, so that there is no `--output`."""
    forms: tuple[str, ...] = ()
    """Other forms of the text, each an attribute of the result or of its rows, too."""
    none: str = ""
    """What is said of a table without rows, if the result does not say it."""
    spare: tuple[str, ...] = ()
    """Columns that a narrow terminal does without."""
    example: str = ""
    """The words behind the name, in an example."""
    checks: bool = False
    """Whether an EntityContext says if it is checked that what entities name can be reached."""
    long: bool = False
    """Whether it may take minutes."""
    no_route: str = ""
    """Why a server does not offer it; empty if it does."""
    answers: int = 200
    """The status of what a server answers: 201 if it makes something, 202 if the work is still to come."""
    function: Any = None

    def __call__(self, function: _Function) -> _Function:
        """Declare a function. Raises TypeError if it lacks a context or a parameter that what it does requires."""
        declared = replace(self, function=function)
        required = () if self.does is Does.READS else ("dry_run", "author")[: 1 + (self.does is not Does.NOTIFIES)]
        missing = [each for each in required if each not in declared.given]
        if missing or (declared.stops_in_safe_mode and not declared.context):
            raise TypeError(f"{self.name}: what {self.does} takes {' and '.join(missing or ['a context'])}")
        setattr(function, DECLARATION, declared)
        return function

    @property
    def stops_in_safe_mode(self) -> bool:
        """Whether it is refused while safe mode is on."""
        return self.does not in (Does.READS, Does.NOTIFIES) and not self.safe

    @cached_property
    def _signature(self) -> Mapping[str, inspect.Parameter]:
        return inspect.signature(self.function).parameters

    @property
    def context(self) -> str:
        """The name of the type of the context; empty without one."""
        return next((each.annotation for each in self._signature.values() if isinstance(each.annotation, str)), "")

    @property
    def given(self) -> frozenset[str]:
        """The parameters that mean the same everywhere, also those that the context has."""
        of_changes = ("ChangeContext", "EntityContext") if self.does is not Does.READS else ("ChangeContext",)
        return (GIVEN & self._signature.keys()) | ({"author", "dry_run"} if self.context in of_changes else set())

    @cached_property
    def queries(self) -> Mapping[str, Any]:
        """The parameters that are queries, with their types."""
        return {name: each.annotation for name, each in self._signature.items() if is_dataclass(each.annotation)}

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """The other parameters, and the fields of queries. Raises TypeError if one is not declared."""
        found: list[Parameter] = []
        for name, each in self._signature.items():
            if name in self.queries:
                found += map(self._read, inspect.signature(self.queries[name]).parameters.values())
            elif name not in GIVEN and not isinstance(each.annotation, str):
                found.append(self._read(each))
        return tuple(found)

    def _read(self, written: inspect.Parameter) -> Parameter:
        if get_origin(written.annotation) is not Annotated:
            raise TypeError(f"{self.name}: the parameter {written.name!r} is not Annotated[…, Param(…)]")
        annotated, param = get_args(written.annotation)
        types = get_args(annotated) if get_origin(annotated) in (Union, UnionType) else (annotated,)
        of_value = next(each for each in types if each is not NoneType)
        origin = get_origin(of_value)
        has_default = written.default is not inspect.Parameter.empty
        return Parameter(
            name=written.name,
            type=get_args(of_value)[0] if origin is tuple else of_value,
            is_several=origin is tuple or (of_value == dict[str, str] and not param.file),
            is_required=not has_default and param.default is None,
            default=written.default if has_default else param.default,
            param=param,
        )

    @property
    def is_of_sites(self) -> bool:
        """Whether a front asks the servers of its colos for it: it is about work, which is done there."""
        return self.group == "instance" or self.name in _OF_SITES

    @property
    def has_route(self) -> bool:
        """Whether a server offers it."""
        return not self.no_route

    @property
    def path(self) -> str:
        """The path of its route: the words of the command."""
        return f"{ROUTES}/{self.name.replace(' ', '/')}"

    @property
    def method(self) -> str:
        """The method of its route: `GET` of what only reads and takes no file, else `POST`."""
        return "GET" if self.does is Does.READS and self.file is None else "POST"

    @property
    def file(self) -> Parameter | None:
        """The parameter that is a file of the caller: the body of a request."""
        return next((each for each in self.parameters if each.param.file), None)

    @property
    def right(self) -> Does:
        """The right that a request for it needs: that of what it does. Definitions of the caller name code, variables
        of the server and places that are reached, so what takes them is for who may declare, also if it only reads.
        """
        has_definitions = self.file is not None and self.file.type.__name__ == "EntityFile"  # which stands above
        return Does.DECLARES if has_definitions else self.does

    def find_rights(self, given: Collection[str]) -> tuple[Does, ...]:
        """Return the rights that a request with some parameters needs, by the names that it gives them."""
        return (self.right, *(each.param.needs for each in self.parameters if each.param.needs and each.name in given))

    @property
    def group(self) -> str:
        """The group of the command, or its own name."""
        return self.name.partition(" ")[0]

    @property
    def about(self) -> str:
        """The text of the function for people, without the errors, which are for programmers."""
        return inspect.cleandoc(self.function.__doc__ or "").partition("\n\nRaises:")[0]

    @property
    def sentence(self) -> str:
        """The first paragraph of the text, in one line."""
        return " ".join(self.about.partition("\n\n")[0].split())


operation = Operation


class _Later(ModuleType):
    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self.__name__), name)


def later(names: dict[str, Any]) -> None:
    """Let a module use the modules that it imports under `if TYPE_CHECKING`, which stands above: each is imported when
    something of it is asked for. So help and completion load no database, and a command only what it needs. From Python
    3.15 on, `lazy` imports (PEP 810) do the same.

    Args:
        names: the names of the module, `globals()`.
    """
    source = names["__loader__"].get_source(names["__name__"])
    block = ast.parse(dedent(source.partition("\nif TYPE_CHECKING:\n")[2].partition("\nlater(")[0])).body
    modules = ((line.module, each) for line in block if isinstance(line, ast.ImportFrom) for each in line.names)
    names |= {each.asname or each.name: _Later(f"{of}.{each.name}") for of, each in modules if each.name.islower()}
