"""Makes what a release carries, in dist/, and says what it found: `make supply-chain`.

Exits 1 for a known vulnerability, for a licence that the policy does not allow, and where a tool
failed; a vulnerability service that does not answer is reported as NOT CHECKED and exits 0.
"""

import argparse
import json
import shutil
import subprocess
import sys
from email.parser import HeaderParser
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZipFile

from deploy.supply.audit import Audit, AuditFailed, audit
from deploy.supply.bill import BilledPackage, bill
from deploy.supply.licences import Policy, is_allowed, licence, read_policy
from deploy.supply.locked import read_pins
from deploy.supply.provenance import LOCK, ROOT, Build, build, git, sha256, statement

OSV = "https://api.osv.dev/v1/query"
INTERNAL = {"demo", "dev"}  # extras of no user
IMAGES = ("worker", "spark")


def main(words: list[str] | None = None) -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(prog="make supply-chain", description=__doc__)
    parser.add_argument("--into", type=Path, default=ROOT / "dist", help="the folder of the files")
    parser.add_argument("--commit", default="HEAD", help="what is built")
    parser.add_argument("--osv-url", default=OSV, help="the service asked for vulnerabilities")
    chosen = parser.parse_args(words)
    chosen.into.mkdir(parents=True, exist_ok=True)
    try:
        return make(chosen.into, chosen.commit, chosen.osv_url)
    except AuditFailed as failed:
        print(f"pip-audit failed:\n{failed}", file=sys.stderr)
    except subprocess.CalledProcessError as failed:
        print(f"{failed}\n{failed.stderr.decode(errors='replace')}", file=sys.stderr)
    return 1


def make(into: Path, commit: str, osv_url: str) -> int:
    """Build a commit, write what belongs to it, then judge its lock file; return the exit code."""
    policy = read_policy()
    with TemporaryDirectory() as folder:
        scratch, built = Path(folder, "source"), Path(folder, "built")
        made = build(commit, built, scratch)
        pins = read_pins(scratch / LOCK)
        licences = {pin.title: licence(pin, policy) for pin in pins}
        beside = [
            *write_bills(made, scratch, licences, built),
            write_licences(made, licences, built),
        ]
        stated = built / f"{stem(made)}.intoto.json"
        stated.write_text(json.dumps(statement(made, beside), indent=2) + "\n")
        for file in (*made.files, *beside, stated):
            print(f"wrote            {shutil.copy(file, into)}")
    if git("status", "--porcelain"):
        print("note             uncommitted changes are not in it")
    print(f"commit           {made.commit}")
    refused = judge_licences(licences, policy)
    return int(judge_audit(audit(pins, policy.accepted, osv_url), len(pins), policy) or refused)


def stem(made: Build) -> str:
    """Return what the names of a release's files begin with."""
    return "-".join(made.files[0].name.split("-")[:2])


def write_bills(made: Build, source: Path, licences: dict[str, str], into: Path) -> list[Path]:
    """Write the bill of the wheel with every extra of users, and one for each image."""
    of, extras = subject(made)
    bills = {"duebridge": source / LOCK}
    bills |= {f"duebridge-{image}": source / f"deploy/images/{image}.lock" for image in IMAGES}
    files = [into / f"{name}-{of.version}.cdx.json" for name in bills]
    for (name, lock), file in zip(bills.items(), files, strict=True):
        file.write_text(bill(of, name, read_pins(lock), licences, extras) + "\n")
    return files


def subject(made: Build) -> tuple[BilledPackage, list[str]]:
    """Return the wheel of a build as its metadata has it, and its extras."""
    wheel = made.files[0]
    with ZipFile(wheel) as opened:
        [name] = [each for each in opened.namelist() if each.endswith(".dist-info/METADATA")]
        told = HeaderParser().parsestr(opened.read(name).decode())
    extras = sorted({*told.get_all("Provides-Extra", [])} - INTERNAL)
    requires = tuple(told.get_all("Requires-Dist", []))
    return BilledPackage(told["Version"], sha256(wheel), requires, made.committed), extras


def write_licences(made: Build, licences: dict[str, str], into: Path) -> Path:
    """Write the licence of each locked package, a line each."""
    file = into / f"{stem(made)}.licences.txt"
    file.write_text("".join(f"{title}\t{each}\n" for title, each in licences.items()))
    return file


def judge_licences(licences: dict[str, str], policy: Policy) -> bool:
    """Say which licences the policy does not allow; return whether there are any."""
    refused = {
        title: each
        for title, each in licences.items()
        if not is_allowed(title.split("==")[0], each, policy)
    }
    for title, each in refused.items():
        print(f"licence REFUSED  {title}: {each} (deploy/supply/policy.toml)")
    print(f"licences         {len(licences) - len(refused)} of {len(licences)} packages allowed")
    return bool(refused)


def judge_audit(audited: Audit, packages: int, policy: Policy) -> bool:
    """Say what is vulnerable and what was not checked; return whether anything is vulnerable."""
    for each in audited.found:
        print(f"VULNERABLE       {each}")
    for each, why in policy.accepted.items():
        print(f"accepted         {each}: {why}")
    if audited.unchecked:
        nothing = len(audited.unchecked) == packages
        names = f"all {packages} packages" if nothing else ", ".join(audited.unchecked)
        reasons = "; ".join(sorted(set(audited.unchecked.values()))[:3])
        print(f"NOT CHECKED      {names}, for vulnerabilities: {reasons}")
    checked = packages - len(audited.unchecked)
    print(f"vulnerabilities  {len(audited.found)} in {checked} packages checked")
    return bool(audited.found)


if __name__ == "__main__":
    sys.exit(main())
