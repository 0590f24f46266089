#!/usr/bin/env bash
# Tests and measures the package on a machine with an NVIDIA GPU: tools/gpu_check.sh OUT [WHEELS]
# Writes OUT/gpu_check.md, OUT/gpu_check.json, the steps' output to OUT/logs, and gpu_probe.sh's files, which
# runs beside the build. Takes less than 8 minutes: steps have limits, and none starts without time left.
# Needs nvcc, a C++ compiler, Python 3.10+ with a CUDA torch, cmake and ninja, but no network. WHEELS holds
# what the machine lacks (pip download): the wheels of mpich, pytest (with iniconfig, pluggy, packaging,
# pygments), rich, matplotlib, cupy, libucx-cu13 (for GPU-aware messages only) and their dependencies. Without
# WHEELS the MPI is that of $MPICC or PATH.
# GPU_CHECK_DEVICE=cpu rehearses all but the probe without a GPU; GPU_CHECK_DEVICE=simgpu the tests, on a
# software GPU (tests/fakecuda), which is slow: GPU_CHECK_TIMES=30 multiplies all limits. GPU_CHECK_ONLY: a
# regular expression that selects steps by name.
set -uo pipefail
. "$(dirname "$0")/gpu_common.sh"
begin "${1:?usage: tools/gpu_check.sh OUT [WHEELS]}" "${2:-}"
device=${GPU_CHECK_DEVICE:-cuda}
only=${GPU_CHECK_ONLY:-.}
times=${GPU_CHECK_TIMES:-1}
seconds_in_all=$((times * ${GPU_CHECK_SECONDS:-465}))
rm -rf "$out/logs" && mkdir -p "$out/logs"
: > "$work/steps"
export SPMD_NOTES=$out/logs/notes.txt SPMD_DEVICE=$device MPI_GDR_TIMEOUT=$((40 * times)) SPMD_HANG_SECONDS=$((60 * times))
export RES_OPTIONS="timeout:1 attempts:1"
export OMP_NUM_THREADS=1 PYTHONFAULTHANDLER=1
: > "$SPMD_NOTES"

# step NAME SECONDS COMMAND...: records outcome, seconds and the last line of output.
step() {
  local name=$1 limit=$(($2 * times)) left=$((seconds_in_all - SECONDS)) begin code=0 outcome
  local log=$out/logs/${name//[^A-Za-z0-9_.-]/_}
  shift 2
  [[ $name =~ $only ]] || return 0
  if [ "$left" -lt 10 ]; then
    printf '%s\tnot begun, no time left\t0\t\n' "$name" | tee -a "$work/steps"
    return 1
  fi
  [ "$limit" -lt "$left" ] || limit=$left
  begin=$(date +%s.%N)
  timeout --kill-after=5 "$limit" "$@" > "$log.txt" 2> "$log.err" || code=$?
  case $code in
    0) outcome=passed ;;
    124 | 137) outcome="ran past $limit s" ;;
    *) outcome="failed with status $code" ;;
  esac
  printf '%s\t%s\t%s\t%s\n' "$name" "$outcome" "$(echo "$(date +%s.%N) $begin" | awk '{printf "%.1f", $1 - $2}')" \
    "$(cat "$log.err" "$log.txt" | grep -v '^ *$' | tail -n 1 | tr '\t' ' ' | cut -c 1-160)" | tee -a "$work/steps"
  return $code
}

skipped() { ! [[ $1 =~ $only ]] || printf '%s\tskipped: %s\t0\t\n' "$1" "$2" | tee -a "$work/steps"; }

# spmd RANKS [pytest arguments]: tests/gpu/ranks, all ranks on one GPU. RANK_UNDER: a program that runs each
# rank.
spmd() {
  local reports python status=0 sharing=()
  reports=$(mktemp -d "$out/logs/ranks-$1.XXXX")
  [ "$device" = cuda ] && sharing=(--ranks-per-gpu "$1")
  python=$(command -v python3)
  # shellcheck disable=SC2086
  (cd "$root/tests" && SPMD_REPORTS=$reports exec python3 -m mpi_backend run -n "$1" "${sharing[@]}" -- ${RANK_UNDER:-} "$python" -u \
    support/spmd_main.py gpu/ranks "${@:2}") || status=$?
  [ $status = 0 ] || tail -n 200 "$reports"/rank*.log "$reports"/rank*.stacks 2> /dev/null
  grep -hE '(passed|failed|error).* in ' "$reports/rank0.log" | tail -n 1  # pytest's last word
  return $status
}
bench() { cd "$work" && python3 -m mpi_backend bench "$@"; }
# Gives torch of all programs below the device simgpu: one GPU, which all ranks share.
use_software_gpu() {
  local about=$work/lib/simgpu-0.dist-info
  mkdir -p "$about"
  printf 'Metadata-Version: 2.1\nName: simgpu\nVersion: 0\n' > "$about/METADATA"
  printf '[torch.backends]\nsimgpu = fakecuda.simgpu.rehearsal:load\n' > "$about/entry_points.txt"
  export PYTHONPATH=$PYTHONPATH:$root/tests FAKECUDA_DEVICES=1
  gpu() { echo "software GPU (tests/fakecuda)"; }
}
# With its own MPS daemon.
bench_with_mps() {
  python3 -c 'import os, sys; from mpi_backend import mps; sys.exit(mps.end_like(mps.run(sys.argv[1:], os.environ)))' \
    bash -c "bench $*"
}
# The self-test by messages only; the last line shows their path.
gpu_aware() {
  export MPI_GDR_IPC=off MPI_GDR_GPU_AWARE=auto MPI_GDR_DEBUG=INFO MPI_GDR_DEBUG_FILE=$out/logs/gpu_aware.%p
  [ -d "$libucx" ] && export LD_LIBRARY_PATH=$libucx${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  python3 -m mpi_backend selftest -n 2 --device "$device" || return
  cat "$out"/logs/gpu_aware.* | grep -o 'messages of tensors on .*' | tail -n 1
}
export -f spmd bench bench_with_mps build_package own_architectures gpu_aware
export out root work device mpicc

if [ -n "$wheels" ]; then install_wheels || exit 1; fi
export libucx=${libraries:-/nowhere}/libucx/lib
probe=
at_end() { [ -z "$probe" ] || kill "$probe" 2> /dev/null; }
if [ "$device" = cuda ] && [[ probe =~ $only ]]; then
  rm -f "$out"/gpu_probe.*
  "$root/tools/gpu_probe.sh" "$out" ${wheels:+"$wheels"} > "$out/logs/probing.txt" 2>&1 &
  probe=$!
fi
step "build" 240 bash -c build_package || [ -e "$work"/lib/mpi_backend/_C*.so ] || [ "$only" != . ] || exit 1
if [ -n "$probe" ]; then
  step "probe" 90 bash -c "tail -n +1 -f --pid=$probe '$out/logs/probing.txt' && [ -e '$out/gpu_probe.json' ]"
  at_end
  probe=
fi
use_package
[ "$device" = simgpu ] && use_software_gpu

measure() {
  if [ "$device" = simgpu ]; then
    skipped "$1" "software tells nothing of the speed of a GPU"
  else
    step "$@"
  fi
}
# training on|off (MPS): two steps, so that the second has results if the first fails.
training() {
  measure "training with 1, 2, 4 ranks per GPU, MPS $1" 60 python3 "$root/examples/ranks_per_gpu.py" --device "$device" --mps "$1" \
    --rounds 1 --iterations 40 --warm-up 10 --out "$out/ranks_per_gpu-mps-$1"
}

# In order of importance, because time may run out. Without MPS ranks that share a GPU take turns of
# milliseconds, so latency is measured with MPS.
step "suite, 2 ranks" 60 bash -c "spmd 2"
if command -v nvidia-cuda-mps-control > /dev/null; then
  measure "bench, device, 2 ranks, MPS" 45 bash -c "bench_with_mps -n 2 device --device $device --rounds 1"
  measure "bench, DDP of the GPT, 2 ranks, MPS" 45 bash -c "bench_with_mps -n 2 ddp --device $device --rounds 1"
  measure "bench, device, 4 ranks, MPS" 45 bash -c "bench_with_mps -n 4 device --device $device --rounds 1"
  training on
else
  skipped "benchmarks with MPS" "no nvidia-cuda-mps-control here"
fi
training off
step "selftest, 2 ranks" 45 python3 -m mpi_backend selftest -n 2 --device "$device"
step "messages by a GPU-aware MPI, 2 ranks" 45 bash -c gpu_aware
measure "bench, device, 2 ranks" 45 bash -c "bench -n 2 device --device $device --rounds 1"
step "suite, 4 ranks" 90 bash -c "spmd 4"
CUDA_DEVICE_MAX_CONNECTIONS=1 step "suite, 2 ranks, one hardware queue" 45 bash -c "spmd 2 -k 'streams or memory or training'"
if command -v compute-sanitizer > /dev/null; then
  RANK_UNDER="compute-sanitizer --tool memcheck --error-exitcode 9" MPI_GDR_TIMEOUT=100 SPMD_HANG_SECONDS=120 \
    step "compute-sanitizer, 2 ranks" 45 bash -c "spmd 2 -k '1000-float32 or 7-bfloat16 or not_contiguous or late'"
else
  skipped "compute-sanitizer, 2 ranks" "no compute-sanitizer here"
fi
if python3 -c "import cupy" 2> /dev/null; then
  SPMD_REFERENCE=cupy step "collectives against CuPy, 2 ranks" 45 bash -c "spmd 2 -k 'test_reductions or test_exchange'"
else
  skipped "collectives against CuPy, 2 ranks" "no CuPy here"
fi
if [ "$device" != cpu ]; then
  step "ranks that fail others, 2 ranks" 120 bash -c \
    'cd "$root/tests" && MPI_GDR_TEST_DEVICE=$device exec python3 -m pytest -q --no-header -p no:cacheprovider launch/test_device_losses.py'
fi
step "suite, 1 rank" 60 bash -c "spmd 1"
step "suite, 8 ranks" 150 bash -c "spmd 8"

python3 - "$work/steps" "$out" "$(commit)" "$(gpu)" "$(software)" "$SECONDS" << 'PYTHON'
import datetime
import json
import pathlib
import sys

steps, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
heads = ("step", "outcome", "seconds", "said")
rows = [dict(zip(heads, line.split("\t"), strict=True)) for line in steps.read_text().splitlines()]
notes = [line.split("\t", 1) for line in (out / "logs" / "notes.txt").read_text().splitlines()]
about = {"date": datetime.datetime.now().isoformat(timespec="minutes"), "commit": sys.argv[3]}
about |= {"gpu": sys.argv[4] or "none", "software": sys.argv[5], "seconds": int(sys.argv[6])}
report = {**about, "steps": [row | {"seconds": float(row["seconds"])} for row in rows], "notes": notes}
(out / "gpu_check.json").write_text(json.dumps(report, indent=1) + "\n")
lines = ["`tools/gpu_check.sh`", "", *(f"- {name}: {value}" for name, value in about.items()), ""]
lines += ["| step | outcome | s | last line |", "|---|---|--:|---|"]
lines += ["| " + " | ".join(row[head].replace("|", "/") for head in heads) + " |" for row in rows]
if notes:
    lines += ["", "| found | |", "|---|---|", *(f"| {name} | {value.replace('|', '/')} |" for name, value in notes)]
for row in rows:  # what a benchmark printed is Markdown, or columns
    name = "".join(c if c.isascii() and (c.isalnum() or c in "_.-") else "_" for c in row["step"])
    if row["step"].startswith(("bench", "training")) and row["outcome"] == "passed":
        text = (out / "logs" / f"{name}.txt").read_text().strip()
        lines += ["", f"## {row['step']}", "", *([text] if "|--" in text else ["```", text, "```"])]
(out / "gpu_check.md").write_text("\n".join(lines) + "\n")
failed = [row["step"] for row in rows if row["outcome"].startswith(("failed", "ran past", "not begun"))]
print(f"{len(rows) - len(failed)} of {len(rows)} steps in order, {about['seconds']} s; {out}/gpu_check.md")
sys.exit(bool(failed))
PYTHON
