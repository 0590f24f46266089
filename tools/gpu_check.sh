#!/usr/bin/env bash
# Tests and measures the package on a machine with NVIDIA GPUs: tools/gpu_check.sh [--fetch] OUT [WHEELS]
# Probes, builds, then runs steps. Writes OUT/gpu_check.md, OUT/gpu_check.json, the steps' output to
# OUT/logs, gpu_probe.sh's files, and an archive of all to send. After the build it takes less than 8 minutes
# on one GPU, 40 on several (GPU_CHECK_SECONDS): steps have limits, and none starts without time left.
# Needs nvcc, a C++ compiler, Python 3.10+ with a CUDA torch, cmake and ninja. WHEELS holds what the machine
# lacks; --fetch downloads tools/gpu_wheels.txt, the only step that needs a network. Without either the MPI is
# that of $MPICC or PATH.
# GPU_CHECK_DEVICE=cpu rehearses all but the probe without a GPU; GPU_CHECK_DEVICE=simgpu all steps on
# FAKECUDA_DEVICES software GPUs (tests/fakecuda; 1), and with GPU_PROBE_CUDA (gpu_probe.sh) the probe. They
# are slow: GPU_CHECK_TIMES=30 multiplies all limits. GPU_CHECK_ONLY: a regular expression that selects steps.
set -uo pipefail
. "$(dirname "$0")/gpu_common.sh"
fetch=
if [ "${1:-}" = --fetch ]; then fetch=1 && shift; fi
begin "${1:?usage: tools/gpu_check.sh [--fetch] OUT [WHEELS]}" "${2:-}"
device=${GPU_CHECK_DEVICE:-cuda}
only=${GPU_CHECK_ONLY:-.}
times=${GPU_CHECK_TIMES:-1}
seconds_in_all=100000  # for the probe and the build
rm -rf "$out"/logs && mkdir -p "$out"/logs/{bench,training}
rm -f "$out"/gpu_{check,probe}[.-]* "$out"/{peers.jsonl,topology.txt}
: > "$work/steps"
export SPMD_NOTES=$out/logs/notes.txt SPMD_DEVICE=$device
export MPI_GDR_TIMEOUT=$((40 * times)) SPMD_GROUP_SECONDS=$((45 * times)) SPMD_HANG_SECONDS=$((60 * times))
export RES_OPTIONS="timeout:1 attempts:1"
export OMP_NUM_THREADS=1 PYTHONFAULTHANDLER=1
: > "$SPMD_NOTES"

# step NAME SECONDS COMMAND...: records outcome, seconds and the last line of output.
step() {
  local name=$1 limit=$(($2 * times)) left=$((seconds_in_all - SECONDS)) begin seconds code=0 outcome
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
  seconds=$(echo "$(date +%s.%N) $begin" | awk '{printf "%.1f", $1 - $2}')
  printf '%s\t%s\t%s\t%s\n' "$name" "$outcome" "$seconds" \
    "$(cat "$log.err" "$log.txt" | grep -v '^ *$' | tail -n 1 | tr '\t' ' ' | cut -c 1-160)" \
    | tee -a "$work/steps"
  return $code
}

skipped() { ! [[ $1 =~ $only ]] || printf '%s\tskipped: %s\t0\t\n' "$1" "$2" | tee -a "$work/steps"; }

# spmd RANKS [pytest arguments]: tests/gpu/ranks. SHARE: ranks on each GPU, by default as few as possible.
# RANK_UNDER: a program that runs each rank.
spmd() {
  local reports python status=0 sharing=() share=${SHARE:-$((($1 + gpus - 1) / gpus))}
  reports=$(mktemp -d "$out/logs/ranks-$1.XXXX")
  [ "$device" = cuda ] && sharing=(--ranks-per-gpu "$share")
  [ "$device" = simgpu ] && export FAKECUDA_DEVICES=$((($1 + share - 1) / share))
  python=$(command -v python3)
  # shellcheck disable=SC2086
  (cd "$root/tests" && SPMD_REPORTS=$reports exec python3 -m mpi_backend run -n "$1" "${sharing[@]}" -- \
    ${RANK_UNDER:-} "$python" -u support/spmd_main.py gpu/ranks "${@:2}") || status=$?
  [ $status = 0 ] || tail -n 200 "$reports"/rank*.log "$reports"/rank*.stacks 2> /dev/null
  grep -hE '(passed|failed|error).* in ' "$reports/rank0.log" | tail -n 1  # pytest's last word
  return $status
}
bench() { cd "$work" && python3 -m mpi_backend bench "$@"; }
# collectives NAME RANKS [options]: times all; OUT/logs/bench/NAME.json.
collectives() {
  local all=all_reduce,broadcast,reduce,all_gather,reduce_scatter,all_to_all,gather,scatter,sendrecv,barrier
  bench -n "$2" $all $short "${@:3}" --json "$out/logs/bench/$1.json"
}
# gpt NAME BACKEND RANKS PROGRAM: trains the GPT; OUT/logs/training/NAME.jsonl.
gpt() {
  python3 -m mpi_backend run -n "$3" -- python3 "$root/examples/$4" --backend "$2" \
    --device "$training_device" --out "$work/$1" --batch-size $((4 * $3)) --sample-every 2 $short_training \
    || return
  cp "$work/$1/log.jsonl" "$out/logs/training/$1.jsonl"
}
# Gives torch of all programs below the device simgpu.
use_software_gpu() {
  local about=$work/lib/simgpu-0.dist-info
  mkdir -p "$about"
  printf 'Metadata-Version: 2.1\nName: simgpu\nVersion: 0\n' > "$about/METADATA"
  printf '[torch.backends]\nsimgpu = fakecuda.simgpu.rehearsal:load\n' > "$about/entry_points.txt"
  export PYTHONPATH=$PYTHONPATH:$root/tests FAKECUDA_DEVICES=${FAKECUDA_DEVICES:-1}
  gpu() { echo "software GPU (tests/fakecuda)"; }
}
# with_mps COMMAND...: with its own MPS daemon.
with_mps() {
  python3 -c 'import os, sys; from mpi_backend import mps
sys.exit(mps.exit_like(mps.run(sys.argv[1:], os.environ)))' bash -c "$*"
}
# The self-test by messages only; the last line shows their path.
gpu_aware() {
  export MPI_GDR_IPC=off MPI_GDR_GPU_AWARE=auto MPI_GDR_DEBUG=INFO MPI_GDR_DEBUG_FILE=$out/logs/gpu_aware.%p
  [ -d "$libucx" ] && export LD_LIBRARY_PATH=$libucx${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  python3 -m mpi_backend selftest -n 2 --device "$device" || return
  cat "$out"/logs/gpu_aware.* | grep -o 'messages of tensors on .*' | tail -n 1
}
export -f spmd bench collectives gpt with_mps build_package own_architectures gpu_aware
export out root work device mpicc

if [ -n "$fetch" ]; then
  wheels=$out/wheels
  python3 -m pip download --quiet --only-binary :all: --dest "$wheels" \
    --requirement "$root/tools/gpu_wheels.txt" || exit 1
fi
if [ "$device" = cuda ] || [ -n "${GPU_PROBE_CUDA:-}" ]; then
  step "probe" 480 "$root/tools/gpu_probe.sh" "$out" ${wheels:+"$wheels"}
fi
if [ -n "$wheels" ]; then install_wheels || exit 1; fi
export libucx=${libraries:-/nowhere}/libucx/lib
step "build" 600 bash -c build_package || [ -e "$work"/lib/mpi_backend/_C*.so ] || [ "$only" != . ] || exit 1
use_package
gpus=1 short="--sizes 8,64K,1M,16M,64M" training_device=$device short_training="--iterations 100"
case $device in
  cuda) gpus=$(python3 -c 'import os; from mpi_backend.gpu_share import visible_gpus
print(len(visible_gpus(os.environ)))') ;;
  simgpu) use_software_gpu && gpus=$FAKECUDA_DEVICES ;;
esac
[ "$gpus" -gt 0 ] || gpus=1
if [ "$device" != cuda ]; then
  short="--sizes 8,64K -n 2 -w 1" training_device=cpu
  short_training="--iterations 4 --text-bytes 400000 --block-size 32 --layers 2 --heads 2 --channels 32"
fi
export gpus short training_device short_training
seconds_in_all=$((SECONDS + times * ${GPU_CHECK_SECONDS:-$((gpus > 1 ? 2400 : 465))}))

measure() {
  if [ "$device" = simgpu ]; then
    skipped "$1" "software tells nothing of the speed of a GPU"
  else
    step "$@"
  fi
}
# training on|off (MPS): two steps, so that the second has results if the first fails.
training() {
  measure "training with 1, 2, 4 ranks per GPU, MPS $1" 60 python3 "$root/examples/ranks_per_gpu.py" \
    --device "$device" --mps "$1" --rounds 1 --iterations 40 --warm-up 10 --out "$out/ranks_per_gpu-mps-$1"
}

# side_by_side RANKS [with_mps]: our kernels beside NCCL inside a node, torch's NCCL, and bare MPI on host
# memory.
side_by_side() {
  local name="$1 ranks${2:+, MPS}" ways=own way backend
  # NCCL needs a GPU for each rank.
  if [ "$device" = cuda ] && [ "$gpus" -gt 1 ] \
    && python3 -c 'import sys, torch.distributed as d; sys.exit(not d.is_nccl_available())'; then
    ways="own nccl nccl-of-torch"
  fi
  for way in $ways; do
    backend=mpi-gdr
    unset MPI_GDR_NODE
    case $ways,$way in
      *,nccl-of-torch) backend=nccl ;;
      *nccl*,*) export MPI_GDR_NODE=$way ;;
    esac
    step "collectives, $name, $way" 180 \
      bash -c "${2:-} collectives $way $1 --device $device --backend $backend"
    step "DDP of the GPT, $name, $way" 90 bash -c "${2:-} gpt ddp-$way $backend $1 gpt/train.py"
    # Its checkpoints need collectives on the CPU.
    step "FSDP2 of the GPT, $name, $way" 90 \
      bash -c "${2:-} gpt fsdp-$way ${backend/#nccl/cpu:gloo,cuda:nccl} $1 fsdp.py"
  done
  unset MPI_GDR_NODE
  step "collectives, $1 ranks, bare MPI" 180 bash -c "collectives mpi $1 --backend mpi"
}

# In order of importance, because time may run out. Without MPS ranks that share a GPU take turns of
# milliseconds, so latency is measured with MPS.
step "suite, 2 ranks" 60 bash -c "spmd 2"
[ "$gpus" = 1 ] || side_by_side "$gpus"
if command -v nvidia-cuda-mps-control > /dev/null; then
  for ranks in 2 4; do
    MPI_GDR_RANKS_PER_GPU=$ranks measure "bench, device, $ranks ranks, MPS" 45 \
      bash -c "with_mps bench -n $ranks device --device $device --rounds 1"
    [ "$gpus" = 1 ] \
      || SHARE=$ranks step "suite, $ranks ranks per GPU, MPS" 150 bash -c "with_mps spmd $((2 * ranks))"
  done
  MPI_GDR_RANKS_PER_GPU=2 measure "bench, DDP of the GPT, 2 ranks, MPS" 45 \
    bash -c "with_mps bench -n 2 ddp --device $device --rounds 1"
  training on
else
  skipped "benchmarks with MPS" "no nvidia-cuda-mps-control here"
fi
[ "$gpus" -gt 1 ] || side_by_side 2 "$(command -v nvidia-cuda-mps-control > /dev/null && echo with_mps)"
training off
step "selftest, 2 ranks" 45 python3 -m mpi_backend selftest -n 2 --device "$device"
step "messages by a GPU-aware MPI, 2 ranks" 45 bash -c gpu_aware
measure "bench, device, 2 ranks" 45 bash -c "bench -n 2 device --device $device --rounds 1"
step "suite, 4 ranks" 90 bash -c "spmd 4"
CUDA_DEVICE_MAX_CONNECTIONS=1 step "suite, 2 ranks, one hardware queue" 45 \
  bash -c "spmd 2 -k 'streams or memory or training'"
if command -v compute-sanitizer > /dev/null; then
  RANK_UNDER="compute-sanitizer --tool memcheck --error-exitcode 9" \
    MPI_GDR_TIMEOUT=100 SPMD_HANG_SECONDS=120 \
    step "compute-sanitizer, 2 ranks" 45 \
    bash -c "spmd 2 -k '1000-float32 or 7-bfloat16 or not_contiguous or late'"
else
  skipped "compute-sanitizer, 2 ranks" "no compute-sanitizer here"
fi
if [ "$device" = cuda ] && python3 -c "import cupy" 2> /dev/null; then
  SPMD_REFERENCE=cupy step "collectives against CuPy, 2 ranks" 45 \
    bash -c "spmd 2 -k 'test_reductions or test_exchange'"
else
  skipped "collectives against CuPy, 2 ranks" "no CuPy here, or no GPU for it"
fi
if [ "$device" != cpu ]; then
  step "ranks that fail others, 2 ranks" 120 bash -c 'cd "$root/tests" && MPI_GDR_TEST_DEVICE=$device \
    exec python3 -m pytest -q --no-header -p no:cacheprovider launch/test_device_losses.py'
fi
step "suite, 1 rank" 60 bash -c "spmd 1"
step "suite, 8 ranks" 150 bash -c "spmd 8"

python3 "$root/tools/gpu_report.py" "$work/steps" "$out" "commit=$(commit)" "gpu=$(gpu)" \
  "software=$(software)" "device=$device" "gpus=$gpus" "seconds=$SECONDS"
