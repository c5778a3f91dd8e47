"""The examples in docstrings give what they say."""

import doctest
import importlib

import pytest

MODULES = ["schemas.validate", "schemas.problems.formats", "schemas.reading.yaml_text"]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0
    assert result.failed == 0
