#!/bin/sh
# All that waits for a GPU, measured within ten minutes by one command:
#   benchmarks/on_gpu.sh [--results FILE] [--minutes 9.5] [--only NAME ...] [--tiny]
# Installs the trainer where this Python cannot import it or sees no GPU. Without a network: WHEELS=FOLDER with wheels.
set -eu
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
case " $* " in
*" --tiny "*) ;;
*)
    if ! "$PYTHON" -c "import trainer.inputs, jax; jax.devices('gpu')" 2>/dev/null; then
        CUDA=${CUDA:-cuda12} # cuda13 for drivers that have it
        "$PYTHON" -m pip install --quiet ${WHEELS:+--no-index --find-links "$WHEELS"} ".[$CUDA]"
    fi
    ;;
esac
exec "$PYTHON" benchmarks/on_gpu.py "$@"
