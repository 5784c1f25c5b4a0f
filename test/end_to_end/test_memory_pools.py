"""Stream-ordered memory pools that a program makes itself."""
import conftest
import pytest

SOURCE = conftest.ROOT / "test/end_to_end/programs/memory_pools.cu"


@pytest.fixture
def check(tool, built):
    return lambda name: tool("run", "--check", "memory", "--", built(SOURCE, "-cudart", "shared"), name)


def test_memory_that_a_pool_gives_again_raises_no_alarm(check):
    run = check("right")
    assert run.report["findings"] == []
    assert run.stdout == "136\n"
    assert run.code == 0


@pytest.mark.parametrize("name, kind, count", [("overflow", "oob-global", 1), ("freed", "use-after-free", 322)])
def test_wrong_use_is_found(check, name, kind, count):
    (finding,) = check(name).report["findings"]
    assert (finding["kind"], finding["count"]) == (kind, count)
    assert finding["allocation"]["api"] == "cuMemAllocFromPoolAsync"
