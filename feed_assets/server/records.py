"""What a server is told: where and how it serves, and what a request has in its path and query."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from feed_assets.errors import WrongUsageError
from feed_assets.operation import Param
from feed_assets.page_addresses import HOME


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where and how is served."""

    host: Annotated[str, Param("The host; by default only this machine reaches it.")] = "127.0.0.1"
    port: Annotated[int, Param("The port; 0 is any that is free.", least=0)] = 3030
    read_only: Annotated[bool, Param("Refuse whatever does not only read.")] = False
    certificate: Annotated[Path | None, Param("A file with the certificate for HTTPS, and those it rests on.")] = None
    key: Annotated[Path | None, Param("The file with its key, if that is not in the same one.")] = None
    insecure: Annotated[bool, Param("Serve plain HTTP to other machines, which tells tokens to the network.")] = False
    with_dagster: Annotated[bool, Param("Serve Dagster's webserver at /, too, behind the same rights.")] = False

    @property
    def has_tls(self) -> bool:
        """Whether it is served by HTTPS."""
        return bool(self.certificate or self.key)

    @property
    def text(self) -> str:
        """The address as a URL has it."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def sentence(self) -> str:
        """That it is served, and where its pages are."""
        url = f"{'https' if self.has_tls else 'http'}://{self.text}"
        dagster = f"; Dagster: {url}" if self.with_dagster else ""
        return f"serving {url} (pages: {url}{HOME}{dagster})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request by a path with parts."""

    values: Mapping[str, Any]
    """The parts of its path and query by their names there: texts, or of a repeated one a list of texts."""

    def one(self, name: str, default: str = "") -> str:
        """Return the one value of a part.

        Raises:
            WrongUsageError: it is there more than once.
        """
        value = self.values.get(name, default)
        if isinstance(value, str):
            return value
        raise WrongUsageError(f"The parameter {name!r} has one value; {len(value)} were given.")
