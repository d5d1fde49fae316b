"""What tests make in a Java machine: databases of Derby that ask for a password, keystores, tables of a catalog."""

from contextlib import suppress
from pathlib import Path

from feed_assets.engines.java.machine import JavaMachine
from feed_assets.engines.spark.sessions import spark_home

DRIVER = "org.apache.derby.jdbc.EmbeddedDriver"
DERBY_JARS = tuple(sorted((spark_home() / "jars").glob("derby*.jar")))


def make_database(machine: JavaMachine, folder: Path, users: dict[str, str]) -> str:
    """A database that lets only these users in; its JDBC URL."""
    url = f"jdbc:derby:{folder}"
    manager = machine.view.java.sql.DriverManager
    connection = manager.getConnection(f"{url};create=true", next(iter(users)), "")
    statement = connection.createStatement()
    settings = {
        "derby.connection.requireAuthentication": "true",
        "derby.authentication.provider": "BUILTIN",
        "derby.database.propertiesOnly": "true",
        **{f"derby.user.{name}": password for name, password in users.items()},
    }
    for name, value in settings.items():
        statement.execute(f"CALL SYSCS_UTIL.SYSCS_SET_DATABASE_PROPERTY('{name}', '{value}')")
    connection.close()
    with suppress(Exception):  # a shutdown always ends with one; beside a Spark session pyspark makes another of it
        manager.getConnection(f"{url};shutdown=true", *next(iter(users.items())))
    return url


def make_keystore(machine: JavaMachine, file: Path, alias: str, password: str) -> str:
    """A credential store of Hadoop with one alias; its URL."""
    url = f"jceks://file{file}"
    conf = machine.view.org.apache.hadoop.conf.Configuration()
    conf.set("hadoop.security.credential.provider.path", url)
    store = machine.view.org.apache.hadoop.security.alias.CredentialProviderFactory.getProviders(conf).get(0)
    text = machine.view.java.lang.Class.forName("java.lang.String")
    characters = text.getMethod("toCharArray", machine.array(machine.view.java.lang.Class))
    chars = characters.invoke(password, machine.array(machine.view.java.lang.Object))
    store.createCredentialEntry(alias, chars)
    store.flush()
    return url
