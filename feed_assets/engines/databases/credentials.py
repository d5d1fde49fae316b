"""From a declared interface of a datasource to the address of its database, with the password that it names."""

from collections.abc import Callable
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from feed_assets.engines.databases.connections import DatabaseAddress, DatabaseConnection, open_connection
from feed_assets.engines.errors import ServiceError
from feed_assets.engines.java.machine import JavaMachine, explain_java
from feed_assets.entities.datasource import Credential, DatabaseInterface, Datasource
from feed_assets.masking import remember_unnamed


def open_interface(
    datasource: Datasource, interface: DatabaseInterface | None, root: Path, java: Callable[[], JavaMachine]
) -> DatabaseConnection:
    """Open a connection by one of the interfaces of a datasource, with the arguments of `open_address`.

    Raises:
        ServiceError: the interface is not declared, or cannot be used.
    """
    if interface is None:
        service, reason = f"datasource {datasource.name!r}", "it has no such interface with driver and credential"
        next_step = "Declare one: readonly for imports, write for exports."
        raise ServiceError(service=service, reason=reason, next_step=next_step)
    return open_connection(java(), open_address(datasource, interface, root=root, java=java))


def open_address(
    datasource: Datasource, interface: DatabaseInterface, *, root: Path, java: Callable[[], JavaMachine]
) -> DatabaseAddress:
    """Return the address of a database by one of its interfaces. `root` is the project's folder, `java` makes the
    machine that reads credential stores and files at URLs, when it is needed.

    Raises:
        ServiceError: a jar, the file of the password or its alias is not there.
    """
    jars = tuple(_local_file(jar, root, java) for jar in interface.driver.jars)
    password = _password(interface.credential, root, java)
    remember_unnamed(password)
    return DatabaseAddress(
        type=datasource.type,
        url=interface.endpoint,
        driver_class=interface.driver.driver_class,
        jars=jars,
        spark_jars=tuple(
            name if _is_elsewhere(name) else jar.resolve().as_uri()
            for name, jar in zip(interface.driver.jars, jars, strict=True)
        ),
        user=interface.credential.user,
        password=password,
        properties=interface.properties,
    )


def _local_file(name: str, root: Path, java: Callable[[], JavaMachine]) -> Path:
    """Return a file of the project, or of a URL, as a local file."""
    if _is_elsewhere(name):
        return java().fetch(name)
    file = root / name.removeprefix("file://")
    if not file.is_file():
        raise ServiceError(service=name, reason=f"{file} is not a file", next_step="Correct the path.")
    return file


def _is_elsewhere(name: str) -> bool:
    return "://" in name and not name.startswith("file://")


def _password(credential: Credential, root: Path, java: Callable[[], JavaMachine]) -> str:
    if credential.password is not None:
        return credential.password
    if credential.password_file is not None:
        return _password_of_file(credential.password_file, root, java)
    assert credential.password_alias is not None, "a credential has one password"
    alias, provider = credential.password_alias.alias, credential.password_alias.provider
    found = find_password(java(), provider if "://" in provider else str(root / provider), alias)
    if found is None:
        raise ServiceError(
            service=f"the credential store {provider}",
            reason=f"it has no alias {alias!r}",
            next_step="Create it with: hadoop credential create.",
        )
    return found


def _password_of_file(name: str, root: Path, java: Callable[[], JavaMachine]) -> str:
    try:
        text = _local_file(name, root, java).read_text("utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as exc:
        raise ServiceError(
            service=f"the password file {name}", reason=f"it cannot be read: {exc}", next_step="Check its rights."
        ) from exc
    if not text:
        raise ServiceError(service=f"the password file {name}", reason="it is empty", next_step="Write the password.")
    return text


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
    except (Py4JError, PySparkException) as exc:
        raise ServiceError(
            service=f"the credential store {provider}",
            reason=f"it cannot be read: {explain_java(exc)}",
            next_step="Check its path and its password (HADOOP_CREDSTORE_PASSWORD).",
        ) from exc
