"""The worker of a queue, which starts the program beside this file instead of the real one."""

import sys
from pathlib import Path

from launch import worker
from launch.places import local

if __name__ == "__main__":
    local.PROGRAM = (sys.executable, str(Path(__file__).with_name("stand_in_program.py")))
    worker.RETRY_SECONDS = 0.3
    worker.main(Path(sys.argv[1]))
