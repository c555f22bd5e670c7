"""The judge of the mutants: what is not caught, does not apply or names no test is told."""

import subprocess
from pathlib import Path

import pytest

from tests.mutants.mutant import Mutant, Run, Stale, complaint, first_words

TEST = "tests/test_x.py::test_adds[1 - 2]"
HEAD = f"# caught by: {TEST}\n# one and one is three\n\n"
DIFF = """\
diff --git a/x.py b/x.py
--- a/x.py
+++ b/x.py
@@ -1,1 +1,1 @@
-SUM = 1 + 1
+SUM = 1 + 2
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "x.py").write_text("SUM = 1 + 1\n")
    return tree


def mutant_of(tree: Path, text: str = HEAD + DIFF) -> Mutant:
    path = tree / "wrong_sum.patch"
    path.write_text(text)
    return Mutant.read(path)


def run_that_said(word: str) -> Run:
    return Run({TEST: word} if word else {}, f"all that pytest wrote of {word}")


def test_apply_changes_the_tree(tree: Path) -> None:
    mutant_of(tree).apply(tree)
    assert (tree / "x.py").read_text() == "SUM = 1 + 2\n"


def test_apply_to_other_lines_names_the_patch_the_file_and_the_remedy(tree: Path) -> None:
    (tree / "x.py").write_text("SUM = 2\n")
    with pytest.raises(Stale, match=r"(?s)wrong_sum.patch does not apply .*x\.py.*git diff"):
        mutant_of(tree).apply(tree)


def test_apply_to_a_tree_within_a_repository_changes_it_all_the_same(tree: Path) -> None:
    subprocess.run(["git", "init", "--quiet", str(tree.parent)], check=True)
    mutant_of(tree).apply(tree)
    assert (tree / "x.py").read_text() == "SUM = 1 + 2\n"


@pytest.mark.parametrize(
    ("text", "test", "bug"),
    [
        (HEAD + DIFF, TEST, "one and one is three"),
        (f"# caught by: {TEST}\n\n{DIFF}", TEST, ""),
        (DIFF, "", ""),
        ("", "", ""),
    ],
)
def test_read_takes_the_test_and_the_bug_from_the_head(
    tree: Path, text: str, test: str, bug: str
) -> None:
    assert mutant_of(tree, text)[1:] == (test, bug)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("PASSED", "FAILED", ""),
        ("PASSED", "PASSED", "survives (one and one is three)"),
        ("PASSED", "ERROR", "neither passes nor fails"),
        ("PASSED", "SKIPPED", "neither passes nor fails"),
        ("PASSED", "", "neither passes nor fails"),
        ("FAILED", "FAILED", "does not pass without the patch"),
        ("", "", "pytest cannot collect"),
    ],
)
def test_complain_unless_the_patch_alone_turns_the_test_red(
    tree: Path, before: str, after: str, expected: str
) -> None:
    said = complaint(mutant_of(tree), run_that_said(before), run_that_said(after))
    assert (expected in said) if expected else said == ""


def test_first_word_of_a_test_is_its_own() -> None:
    output = f"{TEST} FAILED  [ 50%]\n{TEST} ERROR  [100%]\ntests/y.py::b SKIPPED (x)  [100%]\n"
    output += f"FAILED {TEST} - assert 3 == 2\n"
    assert first_words(output) == {TEST: "FAILED", "tests/y.py::b": "SKIPPED"}
