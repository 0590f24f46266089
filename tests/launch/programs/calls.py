"""For the programs of this folder."""

import torch.distributed as dist


def error_of(call, *kinds):
    """The message of the call's error, which is a DistBackendError or one of these kinds; "no error"."""
    try:
        call()
    except (dist.DistBackendError, *kinds) as error:
        return str(error)
    return "no error"
