"""Where room or permission is missing, a run goes on with less and says so; what cannot go on fails with a message."""
import json
import os
import shlex
import shutil
import subprocess

import conftest
import pytest

TOOL = conftest.BUILD / "ops-debug"
PROGRAMS = conftest.BUILD / "test/programs"
OVERFLOW = f"{PROGRAMS}/end_to_end_driver_dlopen overflow"  # one finding, exit code 86, "sum 499500"
BUSY = f"{PROGRAMS}/end_to_end_many_events 0 400"  # more events than a small log holds


def can_mount() -> bool:
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return False
    return subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode == 0


needs_mount = pytest.mark.skipif(not can_mount(), reason="needs root and mount namespaces")


def shell(script: str, mounts: dict[str, str] | None = None) -> subprocess.CompletedProcess:
    """Runs a script. `mounts`: folder -> options of a tmpfs that only the script sees there."""
    lines = ["set -u"]
    if mounts:
        lines.append("mount --make-rprivate /")
        lines += [f"mount -t tmpfs -o {options} none {shlex.quote(str(folder))}" for folder, options in mounts.items()]
    command = ["unshare", "-m"] if mounts else []
    return subprocess.run([*command, "sh", "-c", "\n".join([*lines, script])], capture_output=True, text=True,
                          timeout=120)


def run_line(flags: str, program: str = OVERFLOW) -> str:
    return f"{TOOL} run --device emulator {flags} -- {program}"


@needs_mount
def test_tiny_shared_memory_does_not_stop_a_run(tmp_path):
    run = shell(run_line(f"--format json --output {tmp_path}/report.json"), {"/dev/shm": "size=256k"})
    assert (run.returncode, run.stdout) == (86, "sum 499500\n")
    report = json.loads((tmp_path / "report.json").read_text())
    assert len(report["findings"]) == 1
    remark = next(remark for remark in report["remarks"] if "event ring" in remark["text"])
    assert "is in nameless memory" in remark["text"] and "No space left on device" in remark["text"]


@needs_mount
def test_shared_memory_that_may_not_be_written_does_not_stop_a_run():
    # A user without rights: root may write anywhere. (The tree is copied: its folder may be closed to others.)
    script = f"""cp -r {conftest.BUILD}/ops-debug {conftest.BUILD}/ops-debug-analyzer {conftest.BUILD}/lib /mnt
        mkdir /mnt/emulator && cp {conftest.BUILD}/emulator/*.so* /mnt/emulator
        cp {PROGRAMS}/end_to_end_driver_dlopen /mnt && chmod -R a+rX /mnt
        cd /mnt && exec setpriv --reuid 65534 --regid 65534 --clear-groups \
          /mnt/ops-debug run --device emulator -- /mnt/end_to_end_driver_dlopen overflow"""
    run = shell(script, {"/dev/shm": "size=64m,mode=0700", "/mnt": "size=512m,mode=0755"})
    assert (run.returncode, run.stdout) == (86, "sum 499500\n"), run.stderr
    assert "the event ring is in nameless memory" in run.stderr and "Permission denied" in run.stderr


def test_limit_on_file_sizes_makes_the_ring_smaller(tmp_path):
    run = shell(f"ulimit -f 2048\n{run_line('')}")
    assert (run.returncode, run.stdout) == (86, "sum 499500\n")
    assert "the event ring has 512 KiB instead of 8 MiB" in run.stderr


def test_no_room_for_any_ring_is_said_with_advice():
    run = shell(f"ulimit -f 8\n{run_line('')}")
    assert run.returncode == 3
    assert "cannot create shared memory" in run.stderr and "ulimit -f" in run.stderr
    assert run.stdout == ""  # the program was not started


@needs_mount
def test_full_disk_costs_the_log_but_not_the_report(tmp_path):
    log = tmp_path / "small/run.odlog"
    log.parent.mkdir()
    script = f"""{run_line(f"--log {log} --format json --output {tmp_path}/report.json", BUSY)}
        echo run $?; {TOOL} report --format json --output {tmp_path}/offline.json {log}; echo report $?"""
    run = shell(script, {str(log.parent): "size=4k"})
    assert "run 86\n" in run.stdout
    report = json.loads((tmp_path / "report.json").read_text())
    assert len(report["findings"]) == 16
    assert any("cannot write log" in remark["text"] and "No space left" in remark["text"]
               for remark in report["remarks"])
    # What fitted is a log that was cut off; reading it says so and is no success.
    assert run.stdout.endswith(("report 3\n", "report 86\n"))
    offline = json.loads((tmp_path / "offline.json").read_text())
    assert any("cut off" in remark["text"] for remark in offline["remarks"])


@needs_mount
def test_full_disk_sends_the_report_to_stderr_and_leaves_no_part_of_it(tmp_path):
    small = tmp_path / "small"
    small.mkdir()
    run = shell(f"{run_line(f'--format json --output {small}/report.json', BUSY)}\necho exit $?; ls {small}",
                {str(small): "size=4k"})
    assert run.stdout.endswith("exit 3\n")  # and ls printed nothing
    assert "error: cannot write the report" in run.stderr and "No space left on device" in run.stderr
    assert "16 findings" in run.stderr


@needs_mount
def test_read_only_home_is_no_obstacle():
    script = f"""mount -o remount,ro /mnt
        export HOME=/mnt; unset XDG_CACHE_HOME
        {run_line('')}"""
    run = shell(script, {"/mnt": "size=64k"})
    assert (run.returncode, run.stdout) == (86, "sum 499500\n")


def test_unset_home_is_no_obstacle():
    run = shell(f"unset HOME XDG_CACHE_HOME\n{run_line('')}")
    assert (run.returncode, run.stdout) == (86, "sum 499500\n")


@needs_mount
def test_full_disk_costs_the_dumped_ptx_and_says_so(tmp_path):
    dump = tmp_path / "dump"
    dump.mkdir()
    run = shell(f"head -c 4096 /dev/zero > {dump}/full\nOPS_DEBUG_DUMP_PTX={dump} {run_line('')}", {str(dump): "size=4k"})
    assert (run.returncode, run.stdout) == (86, "sum 499500\n")
    assert "cannot write rewritten PTX" in run.stderr


@pytest.mark.parametrize("flags, text", [
    ("--log /proc/none/run.odlog", "cannot write log"),
    ("--log /proc/none/", "cannot write logs into"),
    ("--output /proc/none/report.txt", "cannot write the report"),
])
def test_places_that_cannot_be_written_are_refused_before_the_program_starts(flags, text):
    run = shell(run_line(flags))
    assert (run.returncode, run.stdout) == (3, "")
    assert text in run.stderr and "hint: choose another" in run.stderr


@pytest.mark.parametrize("flag", ["--log", "--output"])
def test_named_pipe_without_a_reader_is_refused_not_waited_for(tmp_path, flag):
    os.mkfifo(tmp_path / "pipe")
    run = shell(run_line(f"{flag} {tmp_path}/pipe"))
    assert (run.returncode, run.stdout) == (3, "")


def test_report_through_a_named_pipe_with_a_reader(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    run = shell(f"cat {tmp_path}/pipe > {tmp_path}/copy &\n{run_line(f'--output {tmp_path}/pipe')}\ncode=$?; wait; exit $code")
    assert run.returncode == 86
    assert "1 finding" in (tmp_path / "copy").read_text()


@pytest.mark.parametrize("closed", ["2>&-", "<&-", ">&- 2>&- <&-"])
def test_closed_standard_streams_change_nothing_but_what_is_printed(tmp_path, closed):
    log, report = tmp_path / "run.odlog", tmp_path / "report.json"
    run = shell(f"{run_line(f'--log {log} --format json --output {report}')} {closed}")
    assert run.returncode == 86
    assert run.stdout == ("" if closed.startswith(">") else "sum 499500\n")
    assert len(json.loads(report.read_text())["findings"]) == 1
    assert shell(f"{TOOL} report {log}").returncode == 86


def test_target_finds_streams_closed_as_without_us():
    probe = "import os; os.write(9, repr([os.path.exists(f'/proc/self/fd/{n}') for n in range(3)]).encode())"
    run = shell(f"{TOOL} run --device emulator -- python3 -c {shlex.quote(probe)} 9>&1 >&- 2>&- <&-")
    native = shell(f"python3 -c {shlex.quote(probe)} 9>&1 >&- 2>&- <&-")
    assert run.stdout == native.stdout != ""


def test_reader_of_messages_that_goes_away_does_not_end_the_run(tmp_path):
    report = tmp_path / "report.json"
    run = shell(f"({run_line(f'--require-coverage 100 --format json --output {report}')}; echo code $? > {tmp_path}/code) "
                f"2>&1 | true")
    assert run.returncode == 0
    assert (tmp_path / "code").read_text() == "code 86\n"
    assert len(json.loads(report.read_text())["findings"]) == 1


def test_target_dies_of_a_broken_pipe_as_without_us():
    run = shell(f"({TOOL} run --device emulator --output /dev/null -- sh -c 'sleep 0.3; yes'; echo code $? >&2) | true")
    assert "code 141" in run.stderr


def test_process_without_address_space_for_the_ring_is_no_silence(tmp_path):
    # How much the libraries take depends on the build: the first limit under which the program starts.
    report = tmp_path / "report.json"
    for kibibytes in range(9000, 20000, 1000):
        limited = shlex.quote(f"ulimit -v {kibibytes}; exec {OVERFLOW}")
        run = shell(f"{TOOL} run --device emulator --format json --output {report} -- sh -c {limited}")
        remarks = [remark["text"] for remark in json.loads(report.read_text())["remarks"]]
        if any("had no room to map the event ring" in remark for remark in remarks):
            assert run.returncode == 3
            return
    raise AssertionError("never told")
