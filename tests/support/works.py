from concurrent.futures import ThreadPoolExecutor

import torch.distributed as dist


def exception_of(work):
    """Work.exception(); torch 2.11 cannot convert it, so there it is wait()'s exception."""
    if "exception_ptr" not in dist.Work.exception.__doc__:
        return work.exception()
    try:
        work.wait()
    except RuntimeError as error:
        return error
    return None


def wait_all(*works):
    """Waits for all works. A synchronous call returns None instead of a work."""
    for work in works:
        if work is not None:
            work.wait()


def in_threads(function, arguments):
    """Calls function(a) for each of the arguments in a thread of its own; raises the first exception."""
    with ThreadPoolExecutor(len(arguments)) as pool:
        list(pool.map(function, arguments))
