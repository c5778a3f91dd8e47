"""What stands as `code` in the configuration of a job, or in that of the run that it resumes, run as Python."""

import sys
from pathlib import Path

import yaml

if __name__ == "__main__":
    source = Path(sys.argv[3])
    config = yaml.safe_load((source if source.is_file() else source / "config.yaml").read_text("utf-8"))
    sys.argv[0] = "trainproof"
    exec(config["code"], {})
