"""Runs one file of Triton's qa in its directory, and writes what came of each test. argv: the record, the file, names of classes
and tests or nothing for all, or for a program that is no unittest -- and its arguments."""
import importlib.util
import json
import runpy
import sys
import time
import types
import unittest

import tritonclient
import tritonclient.http
import tritonclient.http.aio

import grpc_stand_in

# Old names of tritonclient's, too.
sys.modules["tritonclient.grpc"] = sys.modules["tritongrpcclient"] = tritonclient.grpc = grpc_stand_in
sys.modules["tritonhttpclient"] = tritonclient.http
sys.modules["tritonclient.grpc.aio"] = types.ModuleType("tritonclient.grpc.aio")

record, file, *names = sys.argv[1:]
found = {}


def first_line(error):
    text = str(error).strip() or type(error).__name__
    said = [line for line in text.splitlines() if line.strip()]
    return f"{type(error).__name__}: {said[0]}"[:300]


class Results(unittest.TextTestResult):
    def note(self, test, outcome, why=""):
        name = test.id().partition(".")[2]
        if found.get(name, ["passed"])[0] == "passed":
            found[name] = [outcome, why]
        with open(record, "w", encoding="utf-8") as to:
            json.dump(found, to)

    def startTest(self, test):
        super().startTest(test)
        self.began = time.monotonic()

    def addSuccess(self, test):
        super().addSuccess(test)
        self.note(test, "passed")

    def addError(self, test, err):
        super().addError(test, err)
        self.note(test, "failed", first_line(err[1]))

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.note(test, "failed", first_line(err[1]))

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err:
            self.note(test, "failed", first_line(err[1]))

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.note(test, "skipped", reason)


def run_program(arguments):
    sys.argv = [file, *arguments]
    outcome = ["passed", ""]
    try:
        runpy.run_path(file, run_name="__main__")
    except SystemExit as ended:
        outcome = ["passed", ""] if not ended.code else ["failed", f"exit {ended.code}"]
    except BaseException as error:  # pylint: disable=broad-exception-caught
        outcome = ["failed", first_line(error)]
    with open(record, "w", encoding="utf-8") as to:
        json.dump({" ".join(arguments): outcome}, to)


if names[:1] == ["--"]:
    run_program(names[1:])
else:
    sys.argv = [file]
    sys.path.insert(0, ".")
    spec = importlib.util.spec_from_file_location("suite", file)
    module = sys.modules["suite"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    loader = unittest.defaultTestLoader
    tests = loader.loadTestsFromNames(names, module) if names else loader.loadTestsFromModule(module)
    unittest.TextTestRunner(resultclass=Results, verbosity=2).run(tests)
