"""Lets the assertions of the contract kit explain themselves, as those of test files do."""

import pytest

pytest.register_assert_rewrite("tests.protocols.contract")
