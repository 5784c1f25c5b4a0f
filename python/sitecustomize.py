"""Python runs this at start-up, because `ops-debug run` puts this folder in front of PYTHONPATH.

It runs the sitecustomize that Python would have run without us, then prepares the adapters for frameworks whose memory
pools live in Python. Outside a session it does nothing else. It never prints and never fails for a reason of ours."""
import os
import sys


def _run_the_other_one():
    import importlib.machinery
    import importlib.util

    own = os.path.dirname(os.path.abspath(__file__))
    path = [entry for entry in sys.path if os.path.abspath(entry or os.curdir) != own]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", path)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module  # what `import sitecustomize` shall mean
    spec.loader.exec_module(module)


def _prepare():
    if not os.environ.get("OPS_DEBUG_RING") or os.environ.get("OPS_DEBUG_TENSORS") == "0":
        return
    try:
        from ops_debug import _import_hook

        _import_hook.install()
    except Exception:
        pass  # pools are then known by their segments only


if sys.version_info >= (3, 6):
    _prepare()
    _run_the_other_one()
