"""The contract's own asserts shall explain themselves as those of a test file do."""

import pytest

from tests.support.certificates import no_secret_is_logged  # noqa: F401

for part in ("publisher", "content", "fault", "outage"):
    pytest.register_assert_rewrite(f"tests.contract.{part}_contract")
pytest.register_assert_rewrite("tests.contract.sources")
