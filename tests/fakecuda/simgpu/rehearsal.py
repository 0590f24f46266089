"""For tools/gpu_check.sh in rehearsal: makes the simulated accelerator torch's device in programs that know
nothing of it, as an entry point of the group torch.backends."""


def load() -> None:
    """At the end of `import torch`."""
    import torch.distributed as dist
    from fakecuda import simgpu

    from mpi_backend import _autoload

    _autoload.register()  # this may be called before its own entry point
    simgpu.serve()
    # Which device types init_process_group("mpi-gdr") serves.
    dist.Backend.default_device_backend_map.setdefault("simgpu", "mpi-gdr")
    served = dist.Backend.backend_capability["mpi-gdr"]
    if "simgpu" not in served:
        served.append("simgpu")
