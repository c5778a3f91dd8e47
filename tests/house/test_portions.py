"""Tests that share what a module prepares go to one worker: their names say so to xdist."""

import pytest


@pytest.fixture(scope="module")
def prepared() -> list[str]:
    return []


@pytest.fixture(autouse=True)
def _divided(request: pytest.FixtureRequest) -> None:
    if not request.config.getoption("loadgroup", False):
        pytest.skip("tests are divided under --dist loadgroup alone, as `make test` has it")


@pytest.mark.parametrize("number", range(10))
def test_what_a_module_prepares_is_one_portion(number: int, prepared: list[str], request: pytest.FixtureRequest):
    assert request.node.nodeid.endswith("@house/test_portions.py")
    prepared.append(request.node.name)
    assert len(prepared) == number + 1


@pytest.mark.parametrize("number", range(10))
def test_other_tests_of_a_file_are_divided_by_eights(number: int, request: pytest.FixtureRequest):
    assert request.node.nodeid.endswith(f"@house/test_portions.py-{number // 8}")
