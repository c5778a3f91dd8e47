#!/bin/sh
# Measure everything that needs a GPU, within ten minutes, and append a line of JSON for each to results/on_gpu.jsonl:
#   benchmarks/on_gpu.sh [--tiny]
# Each measurement is a process of its own, so one that fails or is cut off does not affect the others. The most important
# are first. Installs the trainer if this Python cannot import it or sees no GPU. Offline: set WHEELS to a folder of wheels.
# TORCH_PYTHON runs the measurement of torch. --tiny uses small shapes on any device and writes no file.
set -eu
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}
RESULTS=benchmarks/results/on_gpu.jsonl
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
if [ "${1:-}" = --tiny ]; then
    RESULTS=/dev/null
elif ! "$PYTHON" -c "import trainer.inputs, jax; jax.devices('gpu')" 2>/dev/null; then
    CUDA=${CUDA:-cuda12} # cuda13 for drivers that have it
    "$PYTHON" -m pip install --quiet ${WHEELS:+--no-index --find-links "$WHEELS"} ".[$CUDA]"
fi
failed=0
line=$(mktemp)
ends=$(($(date +%s) + 570))
for name in products full torch decode lora qlora; do
    python=$PYTHON
    [ $name = torch ] && python=${TORCH_PYTHON:-$PYTHON}
    left=$((ends - $(date +%s)))
    if [ $left -lt 20 ] || ! timeout $left "$python" benchmarks/on_gpu.py $name "$@" >"$line"; then
        echo "$name: failed, or no time left" >&2
        failed=1
        continue
    fi
    tail -n 1 "$line" | tee -a $RESULTS
done
exit $failed
