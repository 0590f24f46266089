# Sourced by the scripts for a machine with a GPU. begin OUT [WHEELS] sets root (the checkout), out, wheels
# and work, a temporary folder that is removed at exit.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

begin() {
  out=$(mkdir -p "$1" && cd "$1" && pwd)
  wheels=${2:+$(cd "$2" && pwd)}
  work=$(mktemp -d)
  trap 'at_end; rm -rf "$work"' EXIT
}

at_end() { :; }  # a script may define its own

# Such as "8 NVIDIA H200, 580.159.04, 143771 MiB". Empty without a GPU.
gpu() {
  nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2> /dev/null \
    | sort | uniq -c | xargs
}

software() {
  printf '%s; %s\n' "$(nvcc --version 2> /dev/null | grep release | sed 's/.*release //')" "$(python3 -c '
import torch, platform; print("torch", torch.__version__, "Python", platform.python_version())')"
}

# Compute capabilities of the GPUs here, such as "90": others would prolong the build. Empty without a GPU.
own_architectures() {
  nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2> /dev/null | tr -d . | sort -u | paste -s -d ';'
}

commit() { git -C "$root" rev-parse --short HEAD 2> /dev/null || echo unknown; }

# Installs $wheels below $work/prefix; an active virtual environment would hide a second one.
install_wheels() {
  python3 -m pip install --quiet --no-index --no-deps --ignore-installed --prefix "$work/prefix" \
    "$wheels"/*.whl || return 1
  bin=$work/prefix/bin
  libraries=$(echo "$work"/prefix/lib/python3*/site-packages)
  mpicc=$bin/mpicc
}

# Builds the package into $work/lib as if installed: with its entry points, by which `import torch` finds it.
# Against a CUDA torch, but linked with its CPU libraries only, like the extension for the CPU wheel.
build_package() {
  local architectures=${MPI_GDR_CUDA_ARCHITECTURES:-$(own_architectures)}
  cd "$root" && MPICC=${mpicc:-${MPICC:-}} MPI_GDR_CUDA_ARCHITECTURES=$architectures \
    python3 setup.py -q build_ext --build-lib "$work/lib" \
    && ! readelf -d "$work"/lib/mpi_backend/_C*.so | grep 'NEEDED.*cuda' \
    && cp -r mpi_backend/*.py mpi_backend/*/ "$work/lib/mpi_backend/" \
    && python3 setup.py -q egg_info --egg-base "$work/lib" \
    && ln -s "$root/examples" "$work/lib/examples"
}

# Prefers the MPI of the wheels, if any, to the one that the dynamic loader finds.
use_package() {
  export PYTHONPATH=$work/lib${libraries:+:$libraries}${PYTHONPATH:+:$PYTHONPATH} PATH=${bin:+$bin:}$PATH
  [ -z "$wheels" ] || export MPI_GDR_MPI_LIBRARY=$work/prefix/lib/libmpi.so.12
}
