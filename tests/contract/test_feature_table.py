"""The README tells what the tests declare."""

from tests.contract.feature_table import README, declared, readme_with, table


def test_feature_table_in_the_readme_is_what_the_tests_declare() -> None:
    remedy = "run: python -m tests.contract.feature_table --update"
    assert README.read_text("utf-8") == readme_with(table(declared())), remedy


def test_feature_table_has_a_column_for_each_shipped_connector() -> None:
    shipped = {path.parent.name for path in README.parent.rglob("publisher.py")}
    assert {features.broker for features in declared()} == shipped
