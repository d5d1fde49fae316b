"""Match the parameters of a Python function with its arguments: Spark, the context, one DataFrame an input."""

import ast
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from inspect import Parameter

from feed_assets.errors import find_similar

SPARK, CONTEXT = "spark", "context"


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """The names of the arguments that a function takes, or the reasons why it cannot be called, and the next step."""

    names: tuple[str, ...]
    faults: tuple[str, ...] = ()
    next_step: str = ""


def match_arguments(parameters: Iterable[Parameter], inputs: Sequence[str], *, is_free: bool = False) -> Arguments:
    """Return the arguments, chosen from `spark`, `context` and the inputs, that a function takes by name.

    Every input needs a parameter, unless the function `is_free` to leave inputs out, as a step is. A parameter that is
    none of these needs a default.

    >>> taken = [Parameter("spark", Parameter.KEYWORD_ONLY), Parameter("flight", Parameter.KEYWORD_ONLY)]
    >>> match_arguments(taken, ["flights"]).next_step
    "Did you mean 'flights' instead of 'flight'? Arguments are passed by name: spark, context, flights."
    """
    parameters, names = tuple(parameters), [parameter_name(name) for name in inputs]
    by_name = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters)
    taken = {p.name for p in by_name}
    known = [SPARK, CONTEXT, *names]
    unknown = [p.name for p in by_name if p.default is p.empty and p.name not in known]
    unknown += [p.name for p in parameters if p.kind is p.POSITIONAL_ONLY]
    unused = [name for name in names if not (takes_all or is_free) and name not in taken]
    clashing = sorted({name for name in names if known.count(name) > 1})
    faults = (
        *(f"two arguments would be called {name!r}" for name in clashing),
        *(f"no argument matches the parameter {name!r}" for name in unknown),
        *(f"the input {name!r} has no parameter" for name in unused),
    )
    free = [name for name in known if name not in taken]
    close = {name: found[0] for name in unknown if (found := find_similar(name, free, n=1, cutoff=0.7))}
    meant = " or ".join(f"{right!r} instead of {wrong!r}" for wrong, right in close.items())
    by = f"Arguments are passed by name: {', '.join(known)}."
    return Arguments(
        names=tuple(known if takes_all else [name for name in known if name in taken]),
        faults=faults,
        next_step=f"Did you mean {meant}? {by}" if meant else f"{by} Rename parameters or inputs.",
    )


def parameter_name(name: str) -> str:
    """Return the parameter of an input: `late-flights` is `late_flights`."""
    return name.replace("-", "_")


def read_parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> tuple[Parameter, ...]:
    """Return the parameters of a function that is only read; a default is its node."""
    written = function.args
    positional = [*written.posonlyargs, *written.args]
    defaults = [Parameter.empty] * (len(positional) - len(written.defaults)) + list(written.defaults)
    found = [
        Parameter(
            each.arg,
            Parameter.POSITIONAL_ONLY if number < len(written.posonlyargs) else Parameter.POSITIONAL_OR_KEYWORD,
            default=default,
        )
        for number, (each, default) in enumerate(zip(positional, defaults, strict=True))
    ]
    found += [Parameter(written.vararg.arg, Parameter.VAR_POSITIONAL)] if written.vararg else []
    found += [
        Parameter(each.arg, Parameter.KEYWORD_ONLY, default=Parameter.empty if default is None else default)
        for each, default in zip(written.kwonlyargs, written.kw_defaults, strict=True)
    ]
    found += [Parameter(written.kwarg.arg, Parameter.VAR_KEYWORD)] if written.kwarg else []
    return tuple(found)
