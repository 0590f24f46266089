#!/usr/bin/env bash
# Line coverage of the code for GPUs by its tests, as a table; fails below the goals. Run it after `make
# package`, with that build's nvcc. Installs gcovr.
#   tools/coverage.sh .venv/bin build/cpython-311-ninja
set -euo pipefail
bin=$1 nvcc=$(sed -n 's/^MPI_GDR_NVCC:[A-Z]*=//p' "$2/CMakeCache.txt") build=build/coverage
tests=(device device_arena device_node device_failures device_load captured_program peer_execution
  stream_execution group_device group_phases engine_chained)
# Percentage of lines, and files; the host runs no lines of kernels (*.cu, *.cuh).
goals=('95:csrc/device/cuda/.*[.][ch]pp$' 95:csrc/transport/ipc/
  '90:csrc/(execution/device/|engine/device_programs[.])')

"$bin/python" -m pip install --quiet "gcovr>=8"
"$bin/cmake" -G Ninja -DCMAKE_MAKE_PROGRAM="$(realpath "$bin/ninja")" -S . -B $build -DMPI_GDR_EXTENSION=OFF \
  -DMPI_GDR_TESTS=ON -DMPI_GDR_COVERAGE=ON -DMPI_GDR_NVCC="$nvcc"
"$bin/cmake" --build $build --target fakecuda_tests "${tests[@]/#/test_}"
find $build -name '*.gcda' -delete
"$bin/ctest" --output-on-failure --timeout 1200 --parallel 3 --test-dir $build -L fakecuda
for test in "${tests[@]}"; do "$build/test_$test"; done
"$bin/gcovr" --filter csrc/ --object-directory $build --gcov-ignore-parse-errors=all \
  --json $build/lines.json $build
status=0
for goal in "${goals[@]}"; do
  "$bin/gcovr" --merge-lines --add-tracefile $build/lines.json --filter "${goal#*:}" \
    --fail-under-line "${goal%%:*}" || status=1
done
exit $status
