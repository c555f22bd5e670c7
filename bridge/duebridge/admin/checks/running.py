"""Compares a configuration with the one that the workers have now."""

from pathlib import Path

from duebridge.config.load import read_config_text
from duebridge.config.models import Config, Store
from duebridge.config.yaml_tree import error_of, read_tree
from duebridge.ports.checks import Finding, FindingSubject, failure, ok

_NAMESPACE = ("store", "namespace")


def compare_namespace(config: Config, running: Path) -> Finding:
    """Return whether the store's namespace is the one in the file `running`, which may be absent.

    Of that file only the namespace is read: another version may have written it. Raises
    `ConfigError` if it is no YAML or the namespace refers to what is not set here.
    """
    place = ".".join(_NAMESPACE)
    if not running.exists():
        return ok(FindingSubject.ROUTE, place, f"no worker has a configuration yet ({running})")
    given, installed = config.store.namespace, _namespace_in(running)
    if given == installed:
        return ok(FindingSubject.ROUTE, place, f"{given}, as in {running}")
    text = f"expected {installed}, where the running workers' envelopes are ({running})"
    remedy = (
        "restore the namespace, or no worker delivers its envelopes; to leave them there, check"
        " without --running (in the chart: preflight.enabled=false, or --no-hooks)"
    )
    return failure(FindingSubject.ROUTE, place, f"{text}; got {given}", remedy)


def _namespace_in(file: Path) -> str:
    tree = read_tree(read_config_text(file), str(file))
    if faults := [fault for fault in tree.faults if fault.path == _NAMESPACE]:
        raise error_of(faults)
    return str(tree.value_at(_NAMESPACE) or Store.model_fields["namespace"].default)
