#!/usr/bin/env bash
# Builds the C++ driver and runs its scenarios on an MPI, without Python or torch. The driver links
# the MPI, like a program that calls MPI; the core loads the library for the MPI's ABI.
#   tests/mpi_cpp/run.sh FOLDER_OF_THE_MPI [FILTER]
# Store mode: unsupervised processes. Launcher mode: the same under mpiexec. Ends with 1 if anything was not
# as expected.
set -u
mpi=$1 filter=${2:-} mpiexec=$1/bin/mpiexec
root=$(realpath "$(dirname "$0")/../..") store=$(mktemp -d) built=$(mktemp -d)
trap 'rm -rf "$store" "$built"' EXIT
driver=$built/driver
"${CXX:-c++}" -std=c++20 -O1 -Wall -Wextra -Wno-unused-parameter -Wno-missing-field-initializers \
  -DOMPI_SKIP_MPICXX -DMPICH_SKIP_MPICXX \
  -I"$root/csrc" -isystem "$mpi/include" "$root/tests/mpi_cpp/driver.cpp" -o "$driver" -L"$root/mpi_backend" \
  -lmpi_gdr_core -L"$mpi/lib" -lmpi -pthread -Wl,-rpath,"$root/mpi_backend" -Wl,-rpath,"$mpi/lib" || exit 1
failed=0
before=$(ls /dev/shm)

verdict() {  # name, expected codes, codes
  # Other jobs' files disappear in time; leaked files stay.
  local left patience=60
  left=$(comm -13 <(echo "$before") <(ls /dev/shm) | grep -E 'mpich|ucx')
  while [ -n "$left" ] && ((patience-- > 0)); do
    sleep 1
    left=$(comm -12 <(echo "$left") <(ls /dev/shm))
  done
  if [ "$2" = "$3" ] && [ -z "$left" ]; then echo "ok      $1"; else
    failed=1
    echo "FAILED  $1: exit codes '$3', expected '$2'; left in /dev/shm: '${left}'"
    cat "$store"/out.*
  fi
  before=$(ls /dev/shm)
}

selected() { [[ "$1" == *"$filter"* ]]; }

free_store() { rm -rf "$store"; mkdir -p "$store"; }

unsupervised() {  # scenario, size, started ranks, expected codes
  selected "store $1 p=$2" || return 0
  free_store
  local pids=() codes=() r pid
  mkdir "$store/kv"
  for ((r = 0; r < $3; ++r)); do
    local node=()  # a host name of its own makes a node
    [ -n "${NODES:-}" ] && node=(unshare -u sh -c 'hostname "$0" && exec "$@"' "node$((r * NODES / $2))")
    timeout 60 "${node[@]}" "$driver" "$1" "$store/kv" "$r" "$2" >"$store/out.$r" 2>&1 &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do wait "$pid"; codes+=($?); done
  verdict "store $1 p=$2 ${note:-}" "$4" "${codes[*]}"
}

launched() {  # scenario, size, expected code
  selected "launcher $1 p=$2" || return 0
  free_store
  mkdir "$store/kv"
  timeout 90 "$mpiexec" -n "$2" "$driver" "$1" "$store/kv" env env >"$store/out.0" 2>&1
  verdict "launcher $1 p=$2 ${note:-}" "$3" "$?"
}

if "$mpiexec" --version | grep -qi 'open.mpi\|openrte\|prrte'; then
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
  for p in 1 2 3 4; do EXPECT_BOOTSTRAP=launcher launched basic $p 0; done
  launched reordered 3 0
  LEVEL=multiple launched existing 2 0
  LEVEL=funneled launched existing 2 0
  launched forks 2 0
  EXPECT_BOOTSTRAP=singleton unsupervised basic 1 1 0
  note="(an error: Open MPI needs its launcher)" unsupervised basic 2 2 "72 72"
  unsupervised missing 3 2 "0 0"
  exit $failed
fi

for p in 1 2 3 4; do
  zeros=$(yes 0 | head -n $p | paste -sd' ')
  mode=store
  [ $p = 1 ] && mode=singleton
  EXPECT_BOOTSTRAP=$mode unsupervised basic $p $p "$zeros"
  EXPECT_BOOTSTRAP=launcher launched basic $p 0
done
if unshare -u true 2>/dev/null; then
  MPIR_CVAR_CH4_NETMOD=ofi FI_PROVIDER=tcp NODES=2 note="(2 nodes)" unsupervised basic 2 2 "0 0"
  MPIR_CVAR_CH4_NETMOD=ofi FI_PROVIDER=tcp NODES=2 note="(2 nodes)" unsupervised basic 4 4 "0 0 0 0"
  MPIR_CVAR_CH4_NETMOD=ofi FI_PROVIDER=tcp NODES=2 note="(2 nodes)" unsupervised dies_in_init 2 2 "124 9"
  UCX_TLS=tcp,self UCX_NET_DEVICES=lo NODES=2 note="(no usable network: MPICH exits with 15)" \
    unsupervised basic 2 2 "15 15"
  MPIR_CVAR_CH4_NETMOD=ofi FI_PROVIDER=tcp NODES=2 note="(2 nodes)" unsupervised forks 2 2 "0 0"
else
  echo "skipped 2 nodes: unshare -u is not permitted here"
fi
LOSE_STORE=1 note="(store lost before the end)" unsupervised basic 2 2 "0 0"
PMI_FD=99 PMI_RANK=0 PMI_SIZE=2 PMIX_NAMESPACE=stale PMIX_RANK=0 PMIX_SERVER_URI=stale \
  EXPECT_BOOTSTRAP=store note="(stale launcher variables)" unsupervised basic 2 2 "0 0"
TORCHELASTIC_RUN_ID=run EXPECT_BOOTSTRAP=store note="(torchrun inside mpiexec)" launched basic 2 0
MPI_GDR_BOOTSTRAP=launcher note="(no launcher: an error)" unsupervised basic 2 2 "72 72"
launched reordered 3 0
LEVEL=multiple launched existing 2 0
LEVEL=funneled launched existing 2 0
LEVEL=multiple note="(a singleton MPI per rank)" unsupervised existing 2 2 "0 0"
unsupervised missing 3 2 "0 0"
unsupervised disagree 2 2 "0 0"
unsupervised dies_in_init 2 2 "124 9"
unsupervised dies_in_init 3 3 "124 124 9"
unsupervised aborts 2 2 "42 0"
unsupervised killed 2 2 "0 137"  # 128 + 9: killed by SIGKILL
unsupervised killed 3 3 "0 0 137"
unsupervised leaves_early 2 2 "0 0"
unsupervised forks 2 2 "0 0"
launched forks 2 0
launched leaves_early 1 0
exit $failed
