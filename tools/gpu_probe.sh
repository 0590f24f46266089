#!/usr/bin/env bash
# Tests the GPU paths' assumptions on a machine with an NVIDIA GPU: tools/gpu_probe.sh OUT [WHEELS]
# Writes OUT/gpu_probe.md, OUT/gpu_probe.json, OUT/peers.jsonl (attributes; rates between GPUs), and with
# nvidia-smi OUT/topology.txt. Takes a minute or two.
# Needs nvcc, a C++ compiler, Python 3.10+ with a CUDA torch, but no network: WHEELS holds the wheels of mpich
# and libucx-cu13 (pip download --no-deps), which are installed to a temporary folder and asked whether they
# take device pointers.
# GPU_PROBE_CUDA rehearses it without a GPU: the folder of a libcudart.so with the kernels of gpu_probe, as
# made by tests/fakecuda. A question that hangs or crashes has that as its answer; GPU_CHECK_TIMES multiplies
# the limits.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/gpu_common.sh"
begin "${1:?usage: tools/gpu_probe.sh OUT [WHEELS]}" "${2:-}"
mps=$work/mps
at_end() { echo quit | CUDA_MPS_PIPE_DIRECTORY=$mps nvidia-cuda-mps-control > /dev/null 2>&1; }
: > "$work/answers"

# ask QUESTION SECONDS COMMAND...: the command's last line is the answer, its status that of ask.
ask() {
  local question=$1 seconds=$(($2 * ${GPU_CHECK_TIMES:-1})) code=0 answer
  shift 2
  timeout --kill-after=5 "$seconds" "$@" > "$work/said" 2> "$work/complained" || code=$?
  answer=$(tail -n 1 "$work/said")
  case $code in
    0) ;;
    124 | 137) answer="hangs (${seconds} s)" ;;
    *) answer="fails with status $code: ${answer:-$(grep -v '^ *$' "$work/complained" | tail -n 1)}" ;;
  esac
  printf '%s\t%s\n' "$question" "$answer" | tee -a "$work/answers"
  return $code
}

options=(-arch=native)
bytes=268435456
if [ -n "${GPU_PROBE_CUDA:-}" ]; then
  options=(-arch=sm_90 -cudart shared "-L$GPU_PROBE_CUDA")
  # Kernels are loaded at the start, because others may not be launched there.
  export LD_LIBRARY_PATH=$GPU_PROBE_CUDA${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} CUDA_MODULE_LOADING=EAGER
  gpu() { echo "software GPU (tests/fakecuda)"; }
  bytes=65536
fi
export CUDA_DEVICE_ORDER=PCI_BUS_ID  # the numbers of nvidia-smi
if command -v nvidia-smi > /dev/null; then
  { nvidia-smi -L; nvidia-smi topo -m; nvidia-smi c2c -s; } > "$out/topology.txt" 2>&1
fi
printf 'machine\t%s\n' "$(gpu)" >> "$work/answers"
printf 'software\t%s\n' "$(software)" >> "$work/answers"

for name in stream_flags peers; do
  nvcc -std=c++17 -O2 "${options[@]}" -o "$work/$name" "$here/gpu_probe/$name.cu" || exit 1
done

# Not the default folder: a build that was killed leaves a lock, for which every later one waits.
export TORCH_EXTENSIONS_DIR=$work
ask "c10::Stream::native_handle() is the CUDA stream, in code built without CUDA" 180 \
  python3 "$here/gpu_probe/torch_stream.py"
for connections in 32 1; do
  export CUDA_DEVICE_MAX_CONNECTIONS=$connections
  for each in round-trip round-trip-kernels other-stream malloc-free lazy-kernel default-stream \
    wait-on-default-stream graph; do
    ask "stream wait: $each, CUDA_DEVICE_MAX_CONNECTIONS=$connections" 20 "$work/stream_flags" "$each"
  done
done
unset CUDA_DEVICE_MAX_CONNECTIONS
CUDA_MODULE_LOADING=EAGER \
  ask "stream wait: lazy-kernel, CUDA_MODULE_LOADING=EAGER" 20 "$work/stream_flags" lazy-kernel
ask "CUDA IPC between two processes" 180 "$work/peers" "$bytes"
grep '^{' "$work/said" > "$out/peers.jsonl"

# MPS as this user, with its own daemon.
export CUDA_MPS_PIPE_DIRECTORY=$mps CUDA_MPS_LOG_DIRECTORY=$mps
mkdir -p "$mps"
# Without the daemon the answers would repeat the earlier ones.
if ask "MPS daemon starts as $(id -un)" 30 bash -c 'nvidia-cuda-mps-control -d && echo yes'; then
  ask "CUDA IPC between two processes under MPS" 180 "$work/peers" "$bytes"
  ask "stream wait: round-trip under MPS" 30 "$work/stream_flags" round-trip
  ask "stream wait: other-stream under MPS" 30 "$work/stream_flags" other-stream
  echo quit | nvidia-cuda-mps-control > /dev/null 2>&1
fi
unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY

if [ -n "$wheels" ]; then
  install_wheels || exit 1
  nvcc -std=c++17 -O2 "${options[@]}" -x cu -I"$work/prefix/include" -o "$work/mpi_device" \
    "$here/gpu_probe/mpi_device.cpp" -L"$work/prefix/lib" -lmpi -Xlinker "-rpath=$work/prefix/lib" || exit 1
  ask "MPICH wheel with its own UCX, device pointers" 60 "$bin/mpiexec" -n 2 "$work/mpi_device"
  if [ -d "$libraries/libucx/lib" ]; then
    LD_LIBRARY_PATH=$libraries/libucx/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} \
      ask "MPICH wheel over the CUDA-enabled UCX wheel, device pointers" 60 \
        "$bin/mpiexec" -n 2 "$work/mpi_device"
  fi
fi

python3 - "$work/answers" "$out" "$(commit)" << 'PYTHON'
import datetime
import json
import pathlib
import sys

rows = [line.split("\t", 1) for line in pathlib.Path(sys.argv[1]).read_text().splitlines() if "\t" in line]
out = pathlib.Path(sys.argv[2])
about = {"date": datetime.date.today().isoformat(), "commit": sys.argv[3]}
(out / "gpu_probe.json").write_text(json.dumps({**about, "answers": dict(rows)}, indent=2) + "\n")
table = "\n".join(f"| {question} | {answer.replace('|', '/')} |" for question, answer in rows)
title = f"`tools/gpu_probe.sh`, {about['date']}, commit {about['commit']}"
(out / "gpu_probe.md").write_text(f"{title}:\n\n| question | answer |\n|---|---|\n{table}\n")
PYTHON
