"""For rehearsals of tools/gpu_check.sh: an entry point of torch.backends that makes the simulated accelerator
torch's device in any program."""


def load() -> None:
    """Called at the end of `import torch`."""
    import torch.distributed as dist
    from fakecuda import simgpu

    from mpi_backend import _autoload

    _autoload.register()  # its own entry point may come later
    simgpu.serve()
    # Device types that init_process_group("mpi-gdr") serves.
    dist.Backend.default_device_backend_map.setdefault("simgpu", "mpi-gdr")
    served = dist.Backend.backend_capability["mpi-gdr"]
    if "simgpu" not in served:
        served.append("simgpu")
