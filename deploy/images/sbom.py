"""The bill of materials of an image, as CycloneDX JSON: every Debian package, wheel and jar.

It is read from what is in the image, not from what was asked for, and says the same of the same
files whenever it is made.
"""

from __future__ import annotations

import re
import uuid
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from email.parser import Parser
from importlib.metadata import Distribution, distributions
from pathlib import Path

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import License
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

NOT_A_PACKAGE = ".md5sums"
# A licence that is longer than this is a text, and not its name.
LONGEST_NAME = 60


def bill(name: str, version: str, roots: Sequence[Path], site: Path) -> str:
    """Return the bill of an image whose files are in `roots`, its Python packages in `site`."""
    found = [each for root in roots for each in debian_packages(root)]
    found += [each for root in roots for each in python_packages(root / site)]
    found += [each for root in roots for each in java_packages(root / site / "pyspark/jars")]
    whole = Component(name=name, version=version, type=ComponentType.CONTAINER, bom_ref=name)
    bom = Bom(components=found)
    bom.metadata.component = whole
    bom.register_dependency(whole, found)
    bom.metadata.timestamp = datetime.fromtimestamp(0, UTC)
    names = sorted(str(each.purl) for each in found)
    bom.serial_number = uuid.uuid5(uuid.NAMESPACE_URL, "\n".join(names))
    return JsonV1Dot6(bom).output_as_string(indent=1)


def component(
    kind: str, name: str, version: str, licenses: Iterable[License] = (), group: str | None = None
) -> Component:
    """Return a library; `kind` and `group` are those of its package URL."""
    url = PackageURL(kind, group, name, version)
    return Component(name=name, version=version, purl=url, bom_ref=str(url), licenses=licenses)


def python_packages(site: Path) -> Iterator[Component]:
    """Give what is installed in a directory."""
    for each in distributions(path=[str(site)]):
        yield component("pypi", each.name.lower(), each.version, _licenses(each))


def _licenses(found: Distribution) -> list[License]:
    known = found.metadata.get_all("License-Expression") or found.metadata.get_all("License") or []
    names = [each for each in known if len(each) < LONGEST_NAME and each != "UNKNOWN"]
    if not names:
        classifiers = found.metadata.get_all("Classifier") or []
        names = [each.rpartition(" :: ")[2] for each in classifiers if each.startswith("License")]
    return [LicenseFactory().make_from_string(each) for each in names]


def debian_packages(root: Path) -> Iterator[Component]:
    """Give what dpkg's own list has, or the entries that images without dpkg have in its place."""
    listed = root / "var/lib/dpkg/status"
    single = sorted((root / "var/lib/dpkg/status.d").glob("*"))
    texts = listed.read_text("utf-8").split("\n\n") if listed.exists() else []
    texts += [path.read_text("utf-8") for path in single if path.suffix != NOT_A_PACKAGE]
    for text in filter(str.strip, texts):
        told = Parser().parsestr(text, headersonly=True)
        yield component("deb", told["Package"], told["Version"], group="debian")


def java_packages(folder: Path) -> Iterator[Component]:
    """Give the jars of a directory, with the group that Maven wrote into most of them."""
    for path in sorted(folder.glob("*.jar")):
        name, version = artifact(path.stem)
        with zipfile.ZipFile(path) as jar:
            told = re.compile(rf"META-INF/maven/([^/]+)/{re.escape(name)}/pom.properties")
            groups = [found[1] for each in jar.namelist() if (found := told.fullmatch(each))]
        kind = "maven" if groups else "generic"
        yield component(kind, name, version, group=groups[0] if groups else None)


def artifact(stem: str) -> tuple[str, str]:
    """Split `kafka-0-10_2.13-4.2.0` where its version begins: at the first `-1.2`."""
    found = re.fullmatch(r"(.+?)-(\d+\.\d.*)", stem)
    return (found[1], found[2]) if found else (stem, "0")
