#!/usr/bin/env bash
# Tabulates (report.py) the files of csrc that an all_reduce of 8 bytes, an all_to_all, a new_group and a
# batch_isend_irecv pass through. Builds the extension beside the package, with -finstrument-functions.
#   tools/calls/run.sh .venv/bin build/cpython-311-ninja    (make house CALLS=1)
set -euo pipefail
bin=$1 build=build/calls here=$(dirname "$0")
names='PACKAGE_VERSION|PYTHON_[A-Z_]+|HEADERS_[a-z]+|TORCHES|TORCH|TORCH_CUDA'
settings=$(sed -nE "s/^(MPI_GDR_($names)):[A-Z]+=(.*)/-D\1=\3/p" "$2/CMakeCache.txt")
mapfile -t settings <<< "$settings"
"$bin/cmake" -G Ninja -DCMAKE_MAKE_PROGRAM="$(realpath "$bin/ninja")" -S . -B $build -DCMAKE_BUILD_TYPE=None \
  -DCMAKE_CXX_FLAGS="-O1 -g1 -finstrument-functions -finstrument-functions-exclude-file-list=/include/" \
  "${settings[@]}"
"$bin/cmake" --build $build --target mpi_gdr_core mpi_gdr_mpich mpi_gdr_raw_mpich _tools \
  "$(sed -nE 's/^MPI_GDR_TORCHES:[A-Z]+=(.*;)?([0-9.]+)=.*/_C\2/p' "$2/CMakeCache.txt")"
g++ -std=c++20 -O1 -shared -fPIC -o $build/calls.so "$here/trace.cpp" -ldl
rm -rf $build/package $build/recorded
mkdir -p $build/package $build/recorded
cp -r mpi_backend $build/package
cp $build/*.so $build/package/mpi_backend
for rank in 1 0; do
  LD_PRELOAD=$(realpath $build/calls.so) PYTHONPATH=$(realpath $build/package) RANK=$rank WORLD_SIZE=2 \
    LOCAL_RANK=$rank MASTER_ADDR=127.0.0.1 MASTER_PORT=29788 OMP_NUM_THREADS=1 \
    "$bin/python" "$here/rank.py" $build/recorded &
done
wait
"$bin/python" "$here/report.py" $build/recorded
