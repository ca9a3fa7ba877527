"""A platform of verl without an accelerator, so that its own trainer takes a step on any machine.

verl knows GPUs and NPUs alone. Ray is told of a resource of the kind that verl asks for.
"""

from contextlib import contextmanager
from types import SimpleNamespace

import torch
import verl.utils.import_utils
from verl.plugin.platform.platform_base import PlatformBase
from verl.plugin.platform.platform_manager import PlatformRegistry


def nothing(*_, **__):
    return None


def none(*_, **__):
    return 0


MODULE = SimpleNamespace(
    **dict.fromkeys(("empty_cache", "synchronize", "reset_peak_memory_stats", "set_device", "ipc_collect"), nothing),
    **dict.fromkeys(("memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved"), none),
    current_device=lambda: 0,
    mem_get_info=lambda *_: (1 << 34, 1 << 34),
    device_count=lambda: 1,
    is_available=lambda: True,
    manual_seed=torch.manual_seed,
    manual_seed_all=torch.manual_seed,
    get_rng_state=lambda *_: torch.get_rng_state(),
    set_rng_state=lambda state, *_: torch.set_rng_state(state),
    Event=SimpleNamespace,
    get_device_name=lambda *_: "CPU",
)


@PlatformRegistry.register("cpu")
class PlatformCpu(PlatformBase):
    device_name = "cpu"
    vendor_name = "none"
    device_module = MODULE

    def is_available(self):
        return True

    def current_device(self):
        return torch.device("cpu")  # an index in verl, which goes into .to()

    def device_count(self):
        return 1

    def set_device(self, device_index):
        pass

    def synchronize(self, device_index=None):
        pass

    def manual_seed(self, seed):
        torch.manual_seed(seed)

    def manual_seed_all(self, seed):
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings):
        pass

    def empty_cache(self):
        pass

    def get_device_capability(self, device_index=0):
        return (None, None)

    def communication_backend_name(self):
        return "gloo"

    def visible_devices_envvar(self):
        return "CPU_VISIBLE_DEVICES"

    @contextmanager
    def nvtx_range(self, msg):
        yield

    def profiler_start(self):
        pass

    def profiler_stop(self):
        pass

    def ray_resource_name(self):
        return "NPU"

    def ray_noset_envvars(self):
        return []

    def is_ipc_supported(self):
        return False

    def cudart(self):
        return None


def initialize(backend=None, *arguments, **words):
    """verl names the CPU's collectives beside the device's, which are the same here."""
    return given(None if backend is None else backend.split(",")[0], *arguments, **words)


given = torch.distributed.init_process_group
torch.distributed.init_process_group = initialize

# verl 0.9 asks TRL for a class that TRL 1 has no more.
verl.utils.import_utils.is_trl_available = lambda: False
