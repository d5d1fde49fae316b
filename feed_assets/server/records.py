"""Where and how is served."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from feed_assets.operation import Param


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where and how is served."""

    host: Annotated[str, Param("The host; by default only this machine reaches it.")] = "127.0.0.1"
    port: Annotated[int, Param("The port; 0 is any that is free.", least=0)] = 3030
    read_only: Annotated[bool, Param("Refuse whatever does not only read.")] = False
    certificate: Annotated[Path | None, Param("A file with the certificate for HTTPS, and those it rests on.")] = None
    key: Annotated[Path | None, Param("The file with its key, if that is not in the same one.")] = None
    insecure: Annotated[bool, Param("Serve plain HTTP to other machines, which tells tokens to the network.")] = False

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
        """That it is served."""
        return f"serving {'https' if self.has_tls else 'http'}://{self.text}"
