"""A process that reads runs for `evidence.index.parallel`: lines of paths come in, what was read goes out."""

from __future__ import annotations

import gc
import json
import os
import pickle
import sys
from pathlib import Path

from evidence.index.parallel import LENGTH_BYTES, read_in_turn

if __name__ == "__main__":
    # Thousands of small documents are made and dropped and none refers to itself: looking for cycles costs an eighth.
    gc.disable()
    # Whoever waits for the runs is to be told of them, and a training that runs here comes first.
    if hasattr(os, "nice"):
        os.nice(10)
    columns_in = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    for line in sys.stdin.buffer:
        folders = [Path(os.fsdecode(bytes.fromhex(name))) for name in json.loads(line)]
        read = [entry for one in read_in_turn(folders, columns_in=columns_in) for entry in one.values()]
        answer = pickle.dumps(read, protocol=pickle.HIGHEST_PROTOCOL)
        sys.stdout.buffer.write(len(answer).to_bytes(LENGTH_BYTES, "big") + answer)
        sys.stdout.buffer.flush()
