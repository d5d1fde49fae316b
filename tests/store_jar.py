"""Write a jar without compression: `python store_jar.py SOURCE TARGET`."""

import sys
from pathlib import Path
from zipfile import ZipFile, ZipInfo


def store(source: str, target: str) -> None:
    with ZipFile(source) as jar, ZipFile(f"{target}.new", "w") as stored:
        for info in jar.infolist():
            stored.writestr(ZipInfo(info.filename), jar.read(info))
    Path(f"{target}.new").replace(target)


if __name__ == "__main__":
    store(*sys.argv[1:])
