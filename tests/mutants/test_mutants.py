"""Each seeded bug turns the test red that its patch names. A mutant that survives is a failure."""

import shutil
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.conftest import ROOT, missing
from tests.mutants.mutant import (
    HERE,
    MARK,
    Mutant,
    Run,
    Stale,
    can_collect,
    complaint,
    copy_tree,
    run_tests,
)

LEAST = 15
ORIGIN = "tests/mutants/test_origin.py::test_import_takes_the_tree_that_the_tests_are_of"
PATCHES = sorted(HERE.glob("*.patch"))
DEMANDED = {
    "token_unchecked",
    "source_before_destination",
    "mandatory_dropped",
    "call_id_forgotten",
    "acked_before_the_confirm",
}


@pytest.fixture(scope="module")
def mutants(request: pytest.FixtureRequest) -> dict[Path, Mutant]:
    """The mutants that this run is about."""
    of_here = [each for each in request.session.items if each.path == request.path]
    chosen = {each.callspec.params["patch"] for each in of_here if hasattr(each, "callspec")}
    return {patch: Mutant.read(patch) for patch in sorted(chosen)}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A copy of the tree, as it is."""
    home = tmp_path_factory.mktemp("mutants")
    yield copy_tree(ROOT, home / "unpatched", with_bytecode=False)
    shutil.rmtree(home)


@pytest.fixture(scope="module")
def before(tree: Path, mutants: dict[Path, Mutant]) -> Run:
    """All named tests, run once without any patch."""
    names = sorted({mutant.test for mutant in mutants.values()})
    run = run_tests(tree, [ORIGIN, *names])
    if not run.results:  # one that pytest cannot collect keeps it from running any
        run = run_tests(tree, [ORIGIN, *(each for each in names if can_collect(tree, each))])
    assert run.results.get(ORIGIN) == "PASSED", run.output
    return run


@pytest.fixture(scope="module")
def after(
    tree: Path, before: Run, mutants: dict[Path, Mutant]
) -> Iterator[Mapping[Path, "Future[Run]"]]:
    """Each named test, run in a copy of its own that has the patch; two at a time."""

    def run(mutant: Mutant) -> Run:
        copy = copy_tree(tree, tree.parent / mutant.path.stem, with_bytecode=True)
        try:
            mutant.apply(copy)
            return run_tests(copy, [mutant.test])
        finally:
            shutil.rmtree(copy)

    threads = ThreadPoolExecutor(2)
    yield {patch: threads.submit(run, mutant) for patch, mutant in mutants.items()}
    threads.shutdown(cancel_futures=True)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.stem)
def test_seeded_bug_turns_the_named_test_red(
    patch: Path, mutants: dict[Path, Mutant], before: Run, after: Mapping[Path, "Future[Run]"]
) -> None:
    mutant = mutants[patch]
    if before.results.get(mutant.test) == "SKIPPED":
        missing(f"what {mutant.test} needs", "run `make services-up`")
    try:
        said = complaint(mutant, before, after[patch].result())
    except Stale as error:
        said = str(error)
    if said:
        pytest.fail(said, pytrace=False)


@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.stem)
def test_patch_begins_with_its_test_and_its_bug(patch: Path) -> None:
    mutant = Mutant.read(patch)
    assert mutant.test.startswith("tests/"), f"expected `{MARK}tests/FILE::TEST` in the first line"
    assert mutant.bug, "expected `# ` and the bug in the second line"


def test_mutants_are_as_many_as_demanded_and_have_those_of_the_contract() -> None:
    assert len(PATCHES) >= LEAST
    assert DEMANDED - {patch.stem for patch in PATCHES} == set()
