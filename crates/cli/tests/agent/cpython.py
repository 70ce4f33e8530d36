"""Runs one module of CPython's own tests, or those whose names contain one of some words, and prints an outcome for each test:
OUTCOME ID."""

import sys
import unittest


class Outcomes(unittest.TextTestResult):
    def say(self, outcome, test):
        sys.__stdout__.write(f"{outcome} {test.id()}\n")
        sys.__stdout__.flush()

    def addSuccess(self, test):
        super().addSuccess(test)
        self.say("ok", test)

    def addError(self, test, err):
        super().addError(test, err)
        self.say("error", test)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.say("failed", test)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.say("skipped", test)

    def addExpectedFailure(self, test, err):
        super().addExpectedFailure(test, err)
        self.say("expected-failure", test)

    def addUnexpectedSuccess(self, test):
        super().addUnexpectedSuccess(test)
        self.say("unexpected-success", test)


def flat(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from flat(test)
        else:
            yield test


def main():
    module, only = sys.argv[1], sys.argv[2:]
    suite = unittest.defaultTestLoader.loadTestsFromName(f"test.{module}")
    # Sockets between virtual machines: where there is no hypervisor they hang.
    tests = [t for t in flat(suite) if "VSOCK" not in t.id() and (not only or any(word in t.id() for word in only))]
    # In their order, in their classes: the suite makes and removes what the classes share.
    runner = unittest.TextTestRunner(resultclass=Outcomes, verbosity=0)
    runner.run(unittest.TestSuite(tests))


main()
