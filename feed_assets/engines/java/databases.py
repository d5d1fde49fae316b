"""Check databases by JDBC: open a real connection with only the declared driver and the declared credential."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError

from feed_assets.engines.errors import ServiceError
from feed_assets.engines.java.machine import JavaMachine, explain_java
from feed_assets.masking import remember_unnamed

_VALID_WITHIN = 5
_CHECK_DRIVER = "Check driver.class and driver.jars."


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseAddress:
    """The address of a database: JDBC URL, driver class, and all jars that the driver needs."""

    url: str
    driver_class: str
    jars: tuple[Path, ...]
    user: str
    password: str = field(repr=False)
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)


def connect(machine: JavaMachine, address: DatabaseAddress) -> None:
    """Open a connection and close it again.

    The driver sees only the JDK and its own jars, so missing jars are detected here.

    Raises:
        ServiceError: the driver cannot be loaded, or the database refuses. The text contains no password.
    """
    remember_unnamed(address.password)
    driver = _load_driver(machine, address.driver_class, address.jars)
    view = machine.view
    properties = view.java.util.Properties()
    for name, value in {**address.properties, "user": address.user, "password": address.password}.items():
        properties.setProperty(name, value)
    try:
        connection = _call(
            machine,
            "java.sql.Driver",
            driver,
            "connect",
            (view.java.lang.String, address.url),
            (view.java.util.Properties, properties),
        )
    except Py4JError as exc:
        raise _refused(address, explain_java(exc)) from exc
    if connection is None:
        raise _refused(address, f"the driver {address.driver_class} does not support such addresses")
    try:
        _call(machine, "java.sql.Connection", connection, "close")
    except Py4JError as exc:
        raise _refused(address, explain_java(exc)) from exc


def find_password(machine: JavaMachine, provider: str, alias: str) -> str | None:
    """Return the password of an alias in a Hadoop credential store (`jceks://file/path/store.jceks`, or a path).

    Raises:
        ServiceError: the store cannot be read.
    """
    view = machine.view
    url = provider if "://" in provider else f"jceks://file{Path(provider).absolute()}"
    conf = view.org.apache.hadoop.conf.Configuration()
    conf.set("hadoop.security.credential.provider.path", url)
    try:
        stores = view.org.apache.hadoop.security.alias.CredentialProviderFactory.getProviders(conf)
        entry = stores.get(0).getCredentialEntry(alias) if stores.size() else None
        return None if entry is None else str(view.java.lang.String(entry.getCredential()))
    except Py4JError as exc:
        raise ServiceError(
            service=f"the credential store {provider}",
            reason=f"it cannot be read: {explain_java(exc)}",
            next_step="Check its path and its password (HADOOP_CREDSTORE_PASSWORD).",
        ) from exc


def _load_driver(machine: JavaMachine, name: str, jars: Sequence[Path]) -> Any:
    view = machine.view
    try:
        found = view.java.lang.Class.forName(name, True, machine.loader(jars))
        constructor = found.getDeclaredConstructor(machine.array(view.java.lang.Class))
        driver = constructor.newInstance(machine.array(view.java.lang.Object))
        is_driver = bool(view.java.lang.Class.forName("java.sql.Driver").isInstance(driver))
    except Py4JError as exc:
        listed = ", ".join(jar.name for jar in jars)
        reason = f"it cannot be loaded from {listed}: {explain_java(exc)}"
        raise ServiceError(service=f"the driver {name}", reason=reason, next_step=_CHECK_DRIVER) from exc
    if not is_driver:
        raise ServiceError(service=f"the driver {name}", reason="it is not a JDBC driver", next_step=_CHECK_DRIVER)
    return driver


def _call(machine: JavaMachine, interface: str, target: Any, method: str, *arguments: tuple[Any, object]) -> Any:
    """Call a method through its interface, because driver classes need not be public."""
    view = machine.view
    by_name = view.java.lang.Class.forName
    types = machine.array(view.java.lang.Class, *(by_name(of._fqn) for of, _ in arguments))
    values = machine.array(view.java.lang.Object, *(value for _, value in arguments))
    return by_name(interface).getMethod(method, types).invoke(target, values)


def _refused(address: DatabaseAddress, reason: str) -> ServiceError:
    return ServiceError(
        service=f"the database {address.url}",
        reason=f"it refuses the connection: {reason}",
        next_step="Check address, user and password.",
    )
