"""Which operations there are, and where: the command line finds them here. `admin operations` lists them."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from importlib import import_module
from types import FunctionType, MappingProxyType

from feed_assets.operation import DECLARATION, Operation, Parameter, operation

MODULES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "admin": (
            "feed_assets.context.commands",
            "feed_assets.orchestration.commands",
            "feed_assets.server.commands",
            "feed_assets.operation_list",
        ),
        "apply": ("feed_assets.definitions.commands",),
        "batch": ("feed_assets.triggers.commands", "feed_assets.external_work.commands"),
        "bundle": ("feed_assets.definitions.bundles.commands",),
        "datasource": ("feed_assets.definitions.datasources.commands",),
        "entity": ("feed_assets.definitions.commands",),
        "export-falcon": ("feed_assets.definitions.falcon.commands",),
        "extension": ("feed_assets.definitions.extensions.commands",),
        "facts": ("feed_assets.instances.commands",),
        "feed": ("feed_assets.instances.commands",),
        "front": ("feed_assets.front.commands",),
        "hold": ("feed_assets.retention.commands",),
        "import": ("feed_assets.definitions.datasources.commands",),
        "import-falcon": ("feed_assets.definitions.falcon.commands",),
        "init": ("feed_assets.scaffolding.commands",),
        "instance": (
            "feed_assets.instances.lists.commands",
            "feed_assets.lineage.commands",
            "feed_assets.definitions.lists.commands",
            "feed_assets.instances.commands",
            "feed_assets.orchestration.commands",
        ),
        "keys": ("feed_assets.catalog.commands",),
        "lineage": ("feed_assets.lineage.commands",),
        "metadata": ("feed_assets.catalog.commands",),
        "mirror": ("feed_assets.replication.mirrors.commands",),
        "notify": ("feed_assets.alerts.delivery.commands",),
        "plan": ("feed_assets.definitions.commands",),
        "quality": ("feed_assets.instances.lists.commands",),
        "queue": ("feed_assets.triggers.commands",),
        "registration": ("feed_assets.registration.commands",),
        "replication": ("feed_assets.replication.commands",),
        "retention": ("feed_assets.retention.commands",),
        "search": ("feed_assets.catalog.commands",),
        "schema": ("feed_assets.definitions.commands",),
        "settings": ("feed_assets.definitions.commands",),
        "serve": ("feed_assets.server.commands",),
        "sla": ("feed_assets.alerts.commands",),
        "token": ("feed_assets.server.commands",),
        "try": ("feed_assets.instances.commands",),
        "validate": ("feed_assets.definitions.commands",),
        "why": ("feed_assets.explain.commands",),
    }
)
"""The modules with the operations of each group, or of a command without one. They import what is light, and the rest
`later`. `GROUPS` of one of them has the text of the group."""

_TYPES: Mapping[object, str] = MappingProxyType(
    {str: "text", bool: "flag", int: "number", datetime: "time", dict[str, str]: "pair", dict[str, object]: "object"}
)


def find_operations(group: str) -> tuple[Operation, ...]:
    """Return the operations of a group, in the order in which they are declared; none without such a group."""
    modules = [import_module(name) for name in MODULES.get(group, ())]
    functions = [(module, each) for module in modules for each in vars(module).values() if type(each) is FunctionType]
    own = (getattr(each, DECLARATION, None) for module, each in functions if each.__module__ == module.__name__)
    return tuple(each for each in own if each is not None and each.group == group)


def find_operation(name: str) -> Operation:
    """Return the operation of a name. Raises StopIteration if there is none."""
    return next(each for each in find_operations(name.partition(" ")[0]) if each.name == name)


def describe_group(group: str) -> str:
    """Return the text of a group, or of one in it; empty if none of its modules has it."""
    modules = MODULES.get(group.partition(" ")[0], ())
    texts = (getattr(import_module(name), "GROUPS", {}).get(group) for name in modules)
    return next(filter(None, texts), "")


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationList:
    """All operations, and their JSON form."""

    items: tuple[Operation, ...]

    def document(self, name: str) -> Mapping[str, object]:
        """Return the members of the JSON form."""
        return {name: [_describe(each) for each in self.items]}


@operation("admin operations", table="name, does, right, what it does=sentence", rows="operations")
def list_operations() -> OperationList:
    """List what can be asked for: each operation, what it does, and its arguments and options."""
    return OperationList(items=tuple(each for group in MODULES for each in find_operations(group)))


def _describe(operation: Operation) -> Mapping[str, object]:
    names = ("name", "group", "does", "right", "long", "no_route", "about")
    return {
        **{name: getattr(operation, name) for name in names},
        "route": operation.has_route,
        **{name: name in operation.given for name in ("author", "dry_run")},
        "parameters": [*map(_describe_parameter, operation.parameters)],
    }


def _describe_parameter(each: Parameter) -> Mapping[str, object]:
    return {
        "name": each.name,
        "type": "choice" if each.choices else _TYPES.get(each.type, each.type.__name__.lower()),
        "choices": each.choices,
        "several": each.is_several,
        "required": each.is_required,
        "argument": each.param.argument,
        "file": each.param.file,
        "needs": each.param.needs,
        "help": each.param.help,
    }
