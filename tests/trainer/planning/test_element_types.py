"""A run in an element type that a device does not have is refused before anything is spent, with what to set."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from schemas.problems import ProblemError
from schemas.render import as_text
from trainer.config.tree import Config, MethodConfig, PrecisionConfig
from trainer.planning.devices import choose_devices, element_types_of, refuse_absent_types

T4 = ("float32", "float16")


@pytest.mark.parametrize(
    ("capability", "has_bfloat16"), [("6.0", False), ("7.0", False), ("7.5", False), ("8.0", True), ("12.0", True)]
)
def test_bfloat16_is_there_from_compute_capability_8_on(capability: str, has_bfloat16: bool):
    """CUDA C++ programming guide, table of arithmetic instructions: P100, V100, T4, A100, RTX 5090."""
    here = choose_devices("cpu", 1)
    types = element_types_of(replace(here, platform="gpu", list=(SimpleNamespace(compute_capability=capability),)))
    assert types is not None
    assert ("bfloat16" in types, "float16" in types, "float32" in types) == (has_bfloat16, True, True)


def test_nothing_is_refused_on_a_cpu(config: Config):
    assert element_types_of(choose_devices("cpu", 1)) is None
    refuse_absent_types(replace(config, precision=PrecisionConfig(params="bfloat16")), kind="cpu", element_types=None)


def test_bfloat16_on_a_t4_is_refused_with_float16_as_advice(config: Config):
    half = replace(
        config, method=MethodConfig(kind="lora"), precision=PrecisionConfig(params="bfloat16", compute="bfloat16")
    )
    with pytest.raises(ProblemError) as caught:
        refuse_absent_types(half, kind="Tesla T4", element_types=T4)
    assert caught.value.exit_code == 3
    assert as_text(caught.value.problems) == (
        "error TP730: Tesla T4 at /precision/params: precision.params is bfloat16, which Tesla T4 does not have.\n"
        "  The matrix units of the device do not support this type: the compiler rejects it, or uses a slower one.\n"
        "  Expected: float16 or float32.\n"
        "  Next: Use --set precision.params=float16.\n"
        "error TP730: Tesla T4 at /precision/compute: precision.compute is bfloat16, which Tesla T4 does not have.\n"
        "  The matrix units of the device do not support this type: the compiler rejects it, or uses a slower one.\n"
        "  Expected: float16 or float32.\n"
        "  Next: Use --set precision.compute=float16.\n"
    )


def test_parameters_that_learn_are_advised_into_float32(config: Config):
    with pytest.raises(ProblemError) as caught:
        refuse_absent_types(replace(config, precision=PrecisionConfig(params="bfloat16")), kind="T4", element_types=T4)
    [problem] = caught.value.problems
    assert problem.next == "Use --set precision.params=float32."
    refuse_absent_types(replace(config, precision=PrecisionConfig(compute="float16")), kind="T4", element_types=T4)
