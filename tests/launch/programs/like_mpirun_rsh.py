"""A fake of MVAPICH's mpirun_rsh. Parses the command line by its rules: options, hosts unless there is a host
file or a batch system, NAME=VALUE, program. Ranks get its variables; MPI starts from PMI_PORT and PMI_ID.

    like_mpirun_rsh.py MPIEXEC [mpirun_rsh's arguments]
"""

import argparse
import os
import re
import sys

RANK = """
import os, sys
rank, size = os.environ["PMI_ID"], sys.argv[1]
for name in ("MPI_LOCALRANKID", "MPI_LOCALNRANKS"):
    os.environ.pop(name, None)
for name, value in (("RANK", rank), ("SIZE", size), ("LOCAL_RANK", rank), ("LOCAL_SIZE", size)):
    os.environ[f"MVP_COMM_WORLD_{name}"] = value
os.environ["MPISPAWN_ID"] = "0"
os.execvp(sys.argv[2], sys.argv[2:])
"""

parser = argparse.ArgumentParser(allow_abbrev=False)
for flag in ("-np", "-ppn", "-hostfile"):
    parser.add_argument(flag, f"-{flag}")
parser.add_argument("-export-all", "--export-all", action="store_true")
parser.add_argument("words", nargs=argparse.REMAINDER)
mpiexec, arguments = sys.argv[1], parser.parse_args(sys.argv[2:])
size, words, hosts = int(arguments.np), arguments.words, []
if arguments.hostfile:
    with open(arguments.hostfile) as file:
        hosts = [line.split(":")[0].strip() for line in file]
elif "=" not in words[0]:
    hosts, words = words[:size], words[size:]
elif "SLURM_JOB_ID" not in os.environ:
    sys.exit("No hostfile specified and no supported RM detected.")
if not set(hosts) <= {"localhost", "127.0.0.1"}:
    sys.exit(f"the fake starts ranks on localhost alone, not on {hosts}")
while re.match(r"\w+=", words[0]):
    name, _, value = words.pop(0).partition("=")
    os.environ[name] = value
if not arguments.export_all:
    sys.exit("without -export-all the ranks of another node miss MPI_GDR_SECRET")
rank = [sys.executable, "-c", RANK, str(size)]
os.execvp(mpiexec, [mpiexec, "-pmi-port", "-n", str(size), *rank, *words])
