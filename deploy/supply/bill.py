"""Bills of materials in CycloneDX: locked packages with licence, digests and what needs what."""

import uuid
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, XsUri
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentScope, ComponentType
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from deploy.supply.locked import Pin, installed

Node = tuple[Pin, str]  # a package, and one of its extras or ""


@dataclass(frozen=True)
class BilledPackage:
    """What a bill is of: the wheel, its digest and requirements, when its commit was made."""

    version: str
    sha256: str
    requires: tuple[str, ...]
    made: datetime


def bill(
    of: BilledPackage,
    name: str,
    pins: Sequence[Pin],
    licences: dict[str, str],
    extras: Collection[str],
) -> str:
    """Return the bill, as JSON, of what the wheel with these extras needs of the pins.

    The same arguments give the same text. What only an extra or a platform needs is `optional`.
    """
    wanted = reachable(of, pins, extras)
    always = {pin for pin, _ in reachable(of, pins, ()) if not pin.marker}
    parts = {pin: component(pin, licences[pin.title], pin in always) for pin, _ in wanted}
    root, serial = root_component(of, name), uuid.uuid5(uuid.NAMESPACE_OID, name + of.sha256)
    bom = Bom(components=parts.values(), serial_number=serial)
    bom.metadata.component, bom.metadata.timestamp = root, of.made
    direct = {pin for extra in ("", *extras) for pin, _ in needs(of.requires, extra, pins)}
    bom.register_dependency(root, [parts[pin] for pin in direct])
    for node in wanted:
        below = {pin for pin, _ in needed_by(node, pins)} - {node[0]}
        bom.register_dependency(parts[node[0]], [parts[pin] for pin in below])
    return make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string(indent=2)


def reachable(of: BilledPackage, pins: Sequence[Pin], extras: Collection[str]) -> list[Node]:
    """Return every pin, with each extra of it, that the wheel with these extras needs."""
    seen: set[Node] = set()
    left = [node for extra in ("", *extras) for node in needs(of.requires, extra, pins)]
    while left:
        node = left.pop()
        if node not in seen:
            seen.add(node)
            left.extend(needed_by(node, pins))
    return sorted(seen, key=lambda node: (node[0].title, node[1]))


def needed_by(node: Node, pins: Sequence[Pin]) -> Iterator[Node]:
    """Yield what a pin with an extra needs; nothing of one that is not installed here."""
    package = installed(node[0])
    return needs((package.requires or ()) if package else (), node[1], pins)


def needs(requires: Collection[str], extra: str, pins: Sequence[Pin]) -> Iterator[Node]:
    """Yield the pins among requirements, for one extra, on any platform."""
    for requirement in map(Requirement, requires):
        name, marker = canonicalize_name(requirement.name), requirement.marker
        of_extra = marker is not None and "extra" in str(marker)
        if marker.evaluate({"extra": extra}) if marker and of_extra else not extra:
            found = (pin for pin in pins if pin.name == name)
            yield from ((pin, each) for pin in found for each in ("", *requirement.extras))


def component(pin: Pin, licence: str, always: bool) -> Component:
    """Return a pin with the digests of its files."""
    url = PackageURL("pypi", None, pin.name, pin.version)
    digests = [HashType(alg=HashAlgorithm.SHA_256, content=each) for each in pin.hashes]
    files = ExternalReference(
        type=ExternalReferenceType.DISTRIBUTION,
        url=XsUri(url.to_string()),
        hashes=digests,
        comment="digests that the lock file accepts",
    )
    return Component(
        name=pin.name, version=pin.version, purl=url, bom_ref=url.to_string(),
        licenses=[LicenseFactory().make_from_string(licence)], external_references=[files],
        scope=ComponentScope.REQUIRED if always else ComponentScope.OPTIONAL,
    )  # fmt: skip


def root_component(of: BilledPackage, name: str) -> Component:
    """Return what the bill is of."""
    url = PackageURL("pypi", None, "duebridge", of.version)
    return Component(
        name=name, version=of.version, type=ComponentType.APPLICATION, purl=url, bom_ref=name,
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=of.sha256)],
        licenses=[LicenseFactory().make_from_string("Apache-2.0")],
    )  # fmt: skip
