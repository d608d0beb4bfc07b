"""`swapnetctl verify`: the same bits in all that a program computes, and what it says where they are not the same."""
import csv
import io
import json
import os
import signal
import subprocess
import time

import pytest

import harness

CTL = harness.BUILD / "bin" / "swapnetctl"


def verify(torch, disk, *program, code=0, options=("-b", "12M"), env=None):
    """The JSON document, and standard error."""
    name, *args = program
    done = harness.Process([CTL, "verify", "-o", "json", "-s", disk / "store", *options, "--", torch.python,
                            harness.program_file(f"{name}"), disk / "record.json", *args], cwd=disk,
                           env={"SWAPNET_DAEMON": "off"} | (env or {})).finish()
    assert done.rc == code, done.describe()
    assert not list(disk.glob("store/verify-*")), "what was recorded is still there"
    return json.loads(done.stdout) if done.stdout else None, done.stderr


def swapped(answer):
    plain, under, *_ = answer["runs"]
    assert not plain["swapnet"] and under["swapnet"]
    assert plain["streamed_bytes"] == 0 < under["streamed_bytes"]
    assert plain["results"] == under["results"] and plain["processes"] == under["processes"]
    return plain


def test_threads_and_children(torch, disk):
    answer, stderr = verify(torch, disk, "verified", "family")
    assert answer["verdict"] == "same" and answer["first_difference"] is None
    plain = swapped(answer)
    assert plain["processes"] == 3 and len(answer["runs"]) == 2
    # 24 layers: by the two threads and the forked child once, three times by the other one
    assert plain["results"] >= 24 * (2 + 1 + 3)
    assert stderr.count("the program's own words") == 4


@pytest.mark.slow
def test_threads_that_share_work(torch113, disk):
    answer, _ = verify(torch113, disk, "verified", "pool")
    assert answer["verdict"] == "same"
    assert swapped(answer)["results"] >= 24 * 16


def test_one_other_bit_is_found_where_it_is(torch213, disk):
    """It is found where it is, and nowhere else."""
    answer, _ = verify(torch213, disk, "verified", "other", code=4)
    plain, under, again = answer["runs"]
    assert answer["verdict"] == "different" and not again["swapnet"]
    first = answer["first_difference"]
    assert first["result"] == plain["results"] and first["missing"] == first["added"] == 1
    assert first["without"] == first["with"] and "[1,512]" in first["with"]
    assert (first["process"], first["thread"]) == (0, 0)


@pytest.mark.slow
def test_results_of_chance_are_undetermined(torch113, disk):
    answer, _ = verify(torch113, disk, "verified", "chance", code=5)
    assert answer["verdict"] == "undetermined" and len(answer["runs"]) == 3


def test_what_people_see(torch113, disk):
    """Without a budget it takes a quarter of what the tensors took: of 24 layers of 1 MiB, less than the least."""
    done = subprocess.run([CTL, "verify", "-s", disk, "--", torch113.python, harness.program_file("verified"), "-", "alone"],
                          env=harness.clean_env({"SWAPNET_DAEMON": "off"}), capture_output=True, text=True, timeout=harness.HANG_S)
    assert done.returncode == 0, done
    lines = done.stdout.splitlines()
    assert lines[0].split()[0] == "RUN" and lines[1].startswith("without swapnet ") and lines[2].startswith("with swapnet ")
    assert lines[-1].startswith("The same bits in all ")
    assert float(lines[1].split()[5]) > 24 and float(lines[2].split()[5]) <= 8


def test_csv_has_a_line_for_each_run(torch113, disk):
    """A line for each run."""
    done = subprocess.run([CTL, "verify", "-o", "csv", "-b", "12M", "-s", disk, "--", torch113.python,
                           harness.program_file("verified"), "-", "alone"],
                          env=harness.clean_env({"SWAPNET_DAEMON": "off"}), capture_output=True, text=True, timeout=harness.HANG_S)
    plain, under = csv.DictReader(io.StringIO(done.stdout))
    assert done.returncode == 0 and (plain["swapnet"], under["swapnet"]) == ("false", "true"), done
    for row in plain, under:
        assert (row["verdict"], row["budget_bytes"], row["exit_status"]) == ("same", str(12 * harness.MIB), "0")
    assert plain["results"] == under["results"] and plain["streamed_bytes"] == "0" < under["streamed_bytes"]


@pytest.mark.slow
def test_ends_without_statistics(torch113, disk):
    answer, _ = verify(torch113, disk, "verified", "short")
    assert answer["verdict"] == "same" and answer["budget_bytes"] == 12 * harness.MIB


@pytest.mark.slow
def test_nothing_to_read(torch113, disk):
    done = subprocess.run([CTL, "verify", "-b", "1G", "-s", disk, "--", torch113.python, harness.program_file("verified"), "-",
                           "alone"], env=harness.clean_env({"SWAPNET_DAEMON": "off"}), capture_output=True, text=True, timeout=harness.HANG_S)
    assert done.returncode == 0 and "Nothing was read from the disk" in done.stdout, done


def test_no_answer(torch113, disk):
    _, stderr = verify(torch113, disk, "verified", "fail", code=1)
    assert "exit status 3" in stderr and "with swapnet" not in stderr
    for command, code, part in ((["true"], 1, "no operator"), (["/nonexistent/program"], 127, "/nonexistent/program"),
                                ([], 2, "no command"), (["-b", "x", "true"], 2, "not a size")):
        done = subprocess.run([CTL, "verify", "-s", disk, *command], capture_output=True, text=True, timeout=harness.HANG_S,
                              env=harness.clean_env({"SWAPNET_DAEMON": "off"}))
        assert done.returncode == code and part in done.stderr and not done.stdout, done


def test_interrupted(disk):
    """A signal reaches the program, no second run is begun, and nothing is left."""
    process = subprocess.Popen([CTL, "verify", "-s", disk, "--", "sh", "-c", "echo begun >&2; exec sleep 60"],
                               stderr=subprocess.PIPE, text=True, env=harness.clean_env())
    while "begun" not in process.stderr.readline():
        pass
    begin = time.monotonic()
    process.send_signal(signal.SIGTERM)
    stderr = process.communicate(timeout=harness.HANG_S)[1]
    assert process.returncode == 128 + signal.SIGTERM and time.monotonic() - begin < 50
    assert "running" not in stderr and not os.listdir(disk)


@pytest.mark.slow
@pytest.mark.parametrize("program, version", [(("vision", "resnet101"), "1.13"), (("train_mlp", "4"), "1.13"),
                                              (("gpt2", "small"), "2.13"), (("compiled",), "2.13")])
def test_real_programs(program, version, disk):
    torch = next(t for t in harness.ALL_TORCH if t.name == version)
    harness.plain(torch, *program)  # what a compiler computes with is only seen in the run that fills its cache
    answer, _ = verify(torch, disk, *program, options=("-b", "48M"))
    assert answer["verdict"] == "same"
    swapped(answer)
