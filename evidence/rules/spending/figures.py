"""What is known of a run before it is started, as numbers; None is not known."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Band:
    """A duration that is not known exactly, in seconds: `low <= likely <= high`."""

    low: float
    likely: float
    high: float

    def times(self, count: float) -> Band:
        """Return `count` such durations one after the other.

        >>> Band(low=1, likely=2, high=4).times(3)
        Band(low=3, likely=6, high=12)
        """
        return Band(low=self.low * count, likely=self.likely * count, high=self.high * count)

    def plus(self, other: Band) -> Band:
        """Return this duration followed by another.

        >>> Band(low=1, likely=2, high=4).plus(exactly(1))
        Band(low=2, likely=3, high=5)
        """
        return Band(low=self.low + other.low, likely=self.likely + other.likely, high=self.high + other.high)


def exactly(seconds: float) -> Band:
    """Return a duration that is known."""
    return Band(low=seconds, likely=seconds, high=seconds)


@dataclass(frozen=True, kw_only=True)
class RunFigures:
    """A run as its spending sees it."""

    file: str
    """What the findings are about, as the user named it: a configuration, or a run folder."""
    steps: int
    """Optimizer steps of the whole run."""
    save_every_steps: int = 0
    """0: only at the end."""
    max_minutes: float | None = None
    """After which the run saves and stops by itself."""
    step_seconds: Band | None = None
    run_seconds: Band | None = None
    """The whole of it: installation, compiling, loading, training, saving, evaluation, export."""
    sessions: int | None = None
    """Sessions that it likely takes."""
    hours_stated: float | None = None
    """A stated duration."""
    compute_type: str | None = None
    """Element type of matrix products."""
    devices: int = 1
    tokens_per_step: int | None = None
    """Of one forward pass, over all devices, padding included."""
    flops_per_step: float | None = None
    """Of one device, from the compiled program."""
    bytes_per_step: float | None = None
    """Moved to and from main memory by one device, from the compiled program."""
    padding_fraction: float | None = None
    """Share of a batch's tokens that are padding, 0 to 1."""
    packing: bool = False
    group_size: int | None = None
    """Completions of a prompt that are compared. None: none are drawn."""
    group_scaled: bool = True
    """Whether advantages are divided by the spread of rewards."""
    distinct_shapes: int | None = None
    """Shapes of batches that the step would be compiled for."""
    compile_seconds: float | None = None
    """Of one of them."""
    donate_declared: bool = True
    state_bytes: int | None = None
    """Trained parameters and optimizer state that the step takes and gives back, on one device."""
    alias_bytes: int | None = None
    """Of the compiled step: what its results reuse of its arguments, on one device."""
    optimizer: str | None = None
    opt_state_bytes: int | None = None
    """Of the compiled step's arguments, on one device."""
    opt_state_arrays: int = 0
    """Arrays of the optimizer's state, each of which a compiler pads."""
    opt_state_bytes_declared: int | None = None
    """What the declared optimizer keeps for the trained parameters, on one device."""
    bytes_per_device: tuple[int, ...] = ()
    """The state on each device. Empty: not known."""
    whole_state_bytes: int | None = None
    """Of all devices together, each array counted once; an equal share is this over the devices."""
    divided: bool = True
    """Whether the state is divided over the devices, as declared."""
    checkpoint_bytes: int | None = None
    checkpoints_on_disk: int | None = None
    """Kept ones and the one being written."""
    host_bytes: int | None = None
    """What the machine around an accelerator needs at most. None: the device is the machine, or it is not known."""
    host_because: str = ""
    """What needs it."""
