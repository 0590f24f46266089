"""One rank of the conformance job: `rank_main.py BACKEND FOLDER`, under a launcher.

Runs all cases of FOLDER/cases in this process, each in its own default group, as the suite's runner does in
processes of its own: a single import of torch makes the suite affordable. Ranks meet over a separate TCPStore
before and after each case.

Writes the names of all cases to FOLDER/all_cases, a line per start and end of a case to FOLDER/rank<r>.jsonl
and all output to FOLDER/rank<r>.log. A rank that hangs in a case logs its stacks and ends; job.py then starts
a new job with the remaining cases.
"""

import datetime
import faulthandler
import gc
import itertools
import json
import os
import signal
import sys
import time
import traceback
import unittest
from pathlib import Path

FOLDER = Path(sys.argv[2])
BACKEND = sys.argv[1]
GROUP_SECONDS = int(os.environ.get("CONFORMANCE_GROUP_SECONDS", "60"))  # the suite's default_pg_timeout
# Exceeds the longest timeout of a group (CUSTOM_PG_TIMEOUT) that a case may wait for.
CASE_SECONDS = GROUP_SECONDS + 60
CASE_BARRIER_SECONDS = 10  # the suite's


def barrier_of(barrier, case):
    """The barrier of a case, with its own count: a case that fails on one rank calls it less often there."""
    counter = itertools.count()
    return lambda: barrier.wait(f"{case}/barrier{next(counter)}", CASE_BARRIER_SECONDS)


def outcome(suite, case, name):
    """("passed", ""), ("skipped", reason) or ("failed", traceback)."""
    try:
        case.setUp()
        getattr(case, name)()
        case.tearDown()
        case.doCleanups()
    except unittest.SkipTest as skip:
        return "skipped", str(skip)
    except SystemExit as end:  # skips by the suite's decorators inside a process
        reasons = {skip.exit_code: skip.message for skip in suite.TEST_SKIPS.values()}
        if end.code in reasons:
            return "skipped", reasons[end.code]
        return "failed", f"sys.exit({end.code})"
    except BaseException:
        return "failed", traceback.format_exc()
    return "passed", ""


def run_case(dist, suite, Case, name, variant, barrier):
    """The outcome in a new default group, which is destroyed afterwards."""
    from torch.testing._internal.common_utils import set_rng_seed

    method = getattr(Case, name)
    if getattr(method, "__unittest_skip__", False):
        return "skipped", method.__unittest_skip_why__
    seconds = suite.CUSTOM_PG_TIMEOUT.get(name, GROUP_SECONDS)
    where = {"rank": int(os.environ["RANK"]), "world_size": int(os.environ["WORLD_SIZE"])}
    where |= {"store": dist.PrefixStore(f"{name}/{variant}", barrier.store)}
    dist.init_process_group(BACKEND, timeout=datetime.timedelta(seconds=seconds), **where)
    set_rng_seed()
    result, text = outcome(suite, Case(name, barrier_of(barrier, f"{name}/{variant}")), name)
    barrier.wait()
    try:
        if dist.is_initialized():
            dist.destroy_process_group()
    except Exception:
        if result == "passed":
            result, text = "failed", f"destroy_process_group after the case:\n{traceback.format_exc()}"
    # Resets what a case and init_process_group leave behind, such as a hook that numbers traceback lines.
    dist.set_debug_level_from_env()
    sys.excepthook = sys.__excepthook__
    gc.collect()
    return result, text


def main():
    import torch
    import torch.distributed as dist

    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    log = os.open(FOLDER / f"rank{rank}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    torch.set_num_threads(1)
    sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
    from suite import case_class, case_names, load, names_as
    from support.barrier import StoreBarrier

    events = (FOLDER / f"rank{rank}.jsonl").open("a", buffering=1)
    barrier = StoreBarrier(FOLDER, rank, size, CASE_SECONDS)
    suites = load(BACKEND, FOLDER)
    classes = {variant: case_class(suite) for variant, suite in suites.items()}
    gc.freeze()  # keeps collections after each case from scanning all of torch
    if rank == 0:
        (FOLDER / "all_cases").write_text("\n".join(case_names(suites["gloo"])))
    for name in (FOLDER / "cases").read_text().split():
        barrier.wait()
        events.write(json.dumps({"event": "start", "case": name}) + "\n")
        # Two steps: all hung ranks write their stacks, then end.
        faulthandler.dump_traceback_later(CASE_SECONDS)
        signal.alarm(CASE_SECONDS + 3)
        started = time.monotonic()
        reasons = []
        for variant, suite in suites.items():
            print(f"---- {name} as for {variant}", flush=True)
            with names_as(BACKEND, variant, suite, name):
                result, text = run_case(dist, suite, classes[variant], name, variant, barrier)
            print(f"     {result} {text}", flush=True)
            if result != "skipped":
                break
            reasons.append(text)
        else:
            text = reasons[0]
        faulthandler.cancel_dump_traceback_later()
        signal.alarm(0)
        end = {"result": result, "text": text, "as": variant, "s": time.monotonic() - started}
        events.write(json.dumps({"event": "end", "case": name, **end}) + "\n")
    events.write(json.dumps({"event": "finish"}) + "\n")
    barrier.wait()
    if rank == 0:  # hosts the store, so it waits for the others' answers
        time.sleep(0.5)
    return 0


if __name__ == "__main__":
    sys.exit(main())
