"""RMM's pools. A resource that divides larger memory into blocks is put behind an rmm.mr.CallbackMemoryResource, which
reports and passes on; resources that go to the driver for each block are seen there. Programs that ask for the current
resource get the one they set."""
from ops_debug import _blocks

FRAMEWORK, POOL = b"RMM", b"RMM memory resource"
DIVIDING = ("PoolMemoryResource", "BinningMemoryResource", "FixedSizeMemoryResource", "ArenaMemoryResource")
# Resources that pass on to another one.
WRAPPING = ("LoggingResourceAdaptor", "StatisticsResourceAdaptor", "TrackingResourceAdaptor", "LimitingResourceAdaptor",
            "FailureCallbackResourceAdaptor")


def _divides(resource):
    while resource is not None:
        name = type(resource).__name__
        if name in DIVIDING:
            return True
        resource = getattr(resource, "upstream_mr", None) if name in WRAPPING else None
    return False


def install(rmm):
    reports = _blocks.connect()
    if reports is None:
        return
    handed_out, given_back = reports
    mr = rmm.mr
    programs_own = {}  # id of a reporting resource -> (it, the program's resource)

    def reporting(resource):
        if not _divides(resource):
            return resource

        def allocate(size, *stream):
            address = resource.allocate(size, *stream)
            if address:
                handed_out(address, size, (size + 255) // 256 * 256, FRAMEWORK, POOL)
            return address

        def deallocate(address, size, *stream):
            given_back(address)
            resource.deallocate(address, size, *stream)

        made = mr.CallbackMemoryResource(allocate, deallocate)
        programs_own[id(made)] = (made, resource)
        return made

    def own(resource):
        return programs_own.get(id(resource), (None, resource))[1]

    real = {name: getattr(mr, name) for name in ("set_per_device_resource", "set_current_device_resource",
                                                 "get_per_device_resource", "get_current_device_resource")}

    def set_per_device_resource(device, resource):
        return real["set_per_device_resource"](device, reporting(resource))

    def set_current_device_resource(resource):
        return real["set_current_device_resource"](reporting(resource))

    def get_per_device_resource(device):
        return own(real["get_per_device_resource"](device))

    def get_current_device_resource():
        return own(real["get_current_device_resource"]())

    for function in (set_per_device_resource, set_current_device_resource, get_per_device_resource,
                     get_current_device_resource):
        setattr(mr, function.__name__, function)
    current = real["get_current_device_resource"]()
    if _divides(current):
        real["set_current_device_resource"](reporting(current))
