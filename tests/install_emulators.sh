#!/bin/sh
# Installs the emulators of storages that are no Python packages, for the tests, below .emulators: Azurite, by npm, and the
# mini cluster of HDFS of PySpark's Hadoop, by curl; its jar is unpacked into one without compression, because each start
# of a name node reads all of it: 7 → 4 CPU seconds. Iceberg's REST catalog, for drills, is the jars in rest_catalog.txt, each
# with its digest. sshd, for sftp, comes with the system's package openssh-server. Tests that miss one of them are skipped.
set -eu
cd "$(dirname "$0")/.."
hadoop=3.5.0
jar=hadoop-client-minicluster-$hadoop-stored.jar
if [ ! -e ".emulators/hadoop/$jar" ]; then
  mkdir -p .emulators/hadoop
  curl -fsS --retry 3 -o ".emulators/hadoop/$jar.part" \
    "https://repo1.maven.org/maven2/org/apache/hadoop/hadoop-client-minicluster/$hadoop/hadoop-client-minicluster-$hadoop.jar"
  echo "06772d24529e59939915979b3edba204d367750ef7dc5120411f35221dd4818c  .emulators/hadoop/$jar.part" | sha256sum -c --quiet
  python3 tests/store_jar.py ".emulators/hadoop/$jar.part" ".emulators/hadoop/$jar"
  rm ".emulators/hadoop/$jar.part"
fi
mkdir -p .emulators/iceberg
while read -r path digest; do
  jar=.emulators/iceberg/${path##*/}
  [ ! -e "$jar" ] || continue
  curl -fsS --retry 3 -o "$jar.part" "https://repo1.maven.org/maven2/$path"
  echo "$digest  $jar.part" | sha256sum -c --quiet
  mv "$jar.part" "$jar"
done <tests/rest_catalog.txt
if command -v npm >/dev/null; then
  npm install --prefix .emulators --no-save --no-fund --no-audit --loglevel=error azurite@3.35.0
fi
