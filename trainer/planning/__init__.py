"""Before spending: machine, programs' memory, time, findings, advice, and `plan.json` of them. `plan.py` is the story.

`devices` says what there is; `estimator` takes what each program needs from its compiler (`compile`) or from a closed
form (`estimate`); `step_time`, `duration` and `spending` say what it takes; `changes` and `advice` what to change;
`out_of_memory` with `account` explains an error. `run_plan` is the plan of the run that is about to begin.
"""
