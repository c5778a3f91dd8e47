"""A plan whose programs were compiled whole is kept, and answers the plain question too."""

from pathlib import Path
from typing import Any

import pytest

from trainproof.orders import plan
from trainproof.orders.plan import PlanFlags, answer_of


def test_what_was_compiled_whole_answers_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TRAINPROOF_CACHE", str(tmp_path))
    made: list[PlanFlags] = []

    def planned(config: object, target: object, flags: PlanFlags) -> dict[str, Any]:
        made.append(flags)
        return {"exact": flags.exact, "quick": flags.quick}

    monkeypatch.setattr(plan, "make_plan", planned)

    def asked(**flags: bool) -> dict[str, Any]:
        return answer_of(PlanFlags(config=Path("trainer/configs/tiny.yaml"), on="kaggle-t4x2", **flags))

    assert asked() == {"exact": False, "quick": False}
    assert asked(exact=True) == {"exact": True, "quick": False}
    assert asked() == {"exact": True, "quick": False}
    assert asked(quick=True) == {"exact": False, "quick": True}
    assert len(made) == 3
