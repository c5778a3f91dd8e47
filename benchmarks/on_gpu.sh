#!/bin/sh
# Measure everything that needs a GPU, within ten minutes:
#   benchmarks/on_gpu.sh [--results FILE] [--minutes 9.5] [--only NAME ...] [--tiny]
# Installs the trainer if this Python cannot import it or sees no GPU. Offline: set WHEELS to a folder of wheels.
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
