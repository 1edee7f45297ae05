#!/usr/bin/env python3
"""Whole machines: user data, and fleets that Terraform makes. Each machine is real (scripts/machine).

usage: tests.py [NAME...]     all tests, or those of a module, class or method, as of unittest
"""

import atexit
import os
import signal
import sys
import unittest

import rig

MODULES = ["user_data_tests", "fleet_tests"]


def main():
    """Runs the tests, or says in one line why they cannot run."""
    if os.geteuid() != 0:
        print("machines: skipped: machines need root")
        return 0
    # Whatever ends the tests, nothing is left.
    atexit.register(lambda: [here.close() for here in list(rig.Installation.running)])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    rig.own_mounts()
    try:
        rig.machine("root", timeout=3600)
    except rig.Absent as reason:
        print(f"machines: skipped: {reason}")
        return 0
    names = sys.argv[1:] or MODULES
    tests = unittest.defaultTestLoader.loadTestsFromNames(names)
    result = unittest.TextTestRunner(verbosity=2, failfast=False).run(tests)
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)
    sys.exit(main())
