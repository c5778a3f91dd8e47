"""The memory that the TPU compiler states for each kind of chip: what needs more is refused with the limit."""

from __future__ import annotations

import json
import os
import re

os.environ |= {"JAX_PLATFORMS": "cpu", "TPU_SKIP_MDS_QUERY": "1", "ALLOW_MULTIPLE_LIBTPU_LOAD": "1"}

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding, PartitionSpec

CHIPS: dict[str, tuple[str, dict[str, Any]]] = {
    "v2": ("v2:2x2", {}),
    "v3": ("v3:2x2", {}),
    "v4": ("v4:2x2x1", {"chip_config_name": "megacore"}),
    "v5e": ("v5e:1x1", {"chips_per_host_bounds": (1, 1, 1)}),
    "v5p": ("v5p:2x2x1", {}),
    "v6e": ("v6e:2x4", {}),
}
TOO_MUCH_GIB = 120


def main() -> None:
    """Print the limit of each kind in GiB, as a line of JSON."""
    found = {}
    for kind, (topology, options) in CHIPS.items():
        chip = topologies.get_topology_desc(topology, "tpu", **options).devices[0]
        here = NamedSharding(Mesh(np.array([chip]), ("devices",)), PartitionSpec())
        much = jax.ShapeDtypeStruct((TOO_MUCH_GIB * 2**18, 1024), jnp.float32, sharding=here)
        try:
            jax.jit(lambda array: array * 2, donate_argnums=0).lower(much).compile()
        except jax.errors.JaxRuntimeError as error:
            limit = re.search(r"available HBM \(([\d.]+)G\)|of ([\d.]+)G hbm", str(error))
            found[kind] = None if limit is None else float(limit[1] or limit[2])
    print(json.dumps(found))


if __name__ == "__main__":
    main()
