"""Rules about clusters and datasources alone."""

from collections.abc import Iterator

from feed_assets.entities.cluster import Cluster
from feed_assets.entities.datasource import Datasource
from feed_assets.issues import Severity
from feed_assets.validation.scope import Complaint, Scope

_BUILT_IN = ("name", "colo")


def check_folders(_: Scope, cluster: Cluster) -> Iterator[Complaint]:
    """Staging, working and temporary files do not share a folder."""
    seen: dict[str, str] = {}
    for name, folder in (
        ("staging", cluster.locations.staging),
        ("working", cluster.locations.working),
        ("temp", cluster.locations.temp),
    ):
        if folder is None:
            continue
        other = seen.setdefault(folder.rstrip("/"), name)
        if other != name:
            yield Complaint(
                path=("locations", name),
                message=f"locations.{name} is the folder of locations.{other}, {folder!r}",
                remedy="Give each a folder of its own.",
            )


def check_hidden_properties(_: Scope, cluster: Cluster) -> Iterator[Complaint]:
    """A property does not have the name of something that every cluster has."""
    for name in _BUILT_IN:
        if name in cluster.properties:
            yield Complaint(
                path=("properties", name),
                message=f"the property {name!r} is hidden: ${{cluster.{name}}} is the cluster's own {name}",
                remedy="Rename the property.",
                severity=Severity.WARNING,
            )


def check_interfaces(_: Scope, datasource: Datasource) -> Iterator[Complaint]:
    """Every interface of a datasource has a driver and a credential, of its own or the datasource's."""
    for name in ("readonly", "write"):
        interface = getattr(datasource.interfaces, name)
        if interface is None:
            continue
        for part in ("driver", "credential"):
            if getattr(interface, part) is None and getattr(datasource, part) is None:
                yield Complaint(
                    path=("interfaces", name),
                    message=f"interfaces.{name} has no {part}, and neither has the datasource",
                    remedy=f"Add {part} to one of them.",
                )
        if not interface.endpoint.startswith("jdbc:"):
            yield Complaint(
                path=("interfaces", name, "endpoint"),
                message=f"interfaces.{name}.endpoint {interface.endpoint!r} is not a JDBC URL",
                remedy="Write for example jdbc:postgresql://host:5432/database.",
            )
