#!/usr/bin/env python3
"""The Debian packages: what is in them, and what they do to real machines. `make test` runs these.

Machines are made by scripts/machine, which needs root. Where it is missing, those tests say that they are skipped."""

import gzip
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import deb_rig as rig  # noqa: E402
from deb_rig import Load, Machine, Network, Origin, Quiet, deb, run, until  # noqa: E402

UNITS = {"sallyport.service", "sallyport.socket", "sallyport-http.socket", "sallyport-control.service",
         "sallyport-edge.service", "sallyport-run.service"}
PASSWORD = "correct horse battery"
PORT = 8443
OLD, NEW, NEWER = rig.VERSIONS


def setUpModule():
    os.environ["SALLYPORT_MACHINES"] = str(rig.folder() / "machines")


def tearDownModule():
    rig.clean()


def needs_machines(test):
    """Skips the test where there can be no machines."""
    def wrapped(self):
        found = run(rig.MACHINE, "root", check=False)
        if found.returncode == 3:
            print(f"skipped: {found.stdout.strip()}")
            self.skipTest(found.stdout.strip())
        test(self)
    wrapped.__name__, wrapped.__doc__ = test.__name__, test.__doc__
    return wrapped


def extracted(name):
    """The files of a package in a folder."""
    path = rig.folder() / f"extracted-{name}"
    if not path.exists():
        run("dpkg-deb", "--extract", deb(name), path)
    return path


def field(name, field_name):
    return run("dpkg-deb", "--field", deb(name), field_name).strip()


class Contents(unittest.TestCase):
    """What is in the packages, without installing them."""

    def test_the_same_programs_give_the_same_packages_and_the_same_repository(self):
        again = rig.folder() / "elsewhere" / "debs"
        environment = {**os.environ, "TZ": "Asia/Tokyo", "LC_ALL": "C"}
        copy = rig.folder() / "elsewhere" / "bin"
        shutil.copytree(rig.programs(), copy)
        for program in copy.iterdir():
            os.utime(program, (1, 1))
        run("sh", "-c", 'umask 077; exec "$@"', "sh", rig.HERE / "debs", "--compression", "none", "--version", OLD, copy, again,
            env=environment)
        for name in rig.PROGRAMS:
            run("cmp", deb(name), again / deb(name).name)
        first = rig.repository("once", OLD)
        second = rig.folder() / "elsewhere" / "repository"
        run(rig.HERE / "apt-repository", again, second, rig.signing_key(), env=environment)
        self.assertEqual(run("diff", "--recursive", first, second), "")
        shutil.rmtree(rig.folder() / "elsewhere")

    def test_the_fields_say_what_a_package_needs_and_what_it_is(self):
        version = rf"{re.escape(OLD)}$"
        for name in rig.PROGRAMS:
            with self.subTest(name):
                self.assertRegex(field(name, "Version"), version)
                self.assertRegex(field(name, "Depends"), r"libc6 \(>= 2\.\d+\)")
                self.assertEqual((field(name, "Architecture"), field(name, "Section")), ("amd64", "net"))
                self.assertTrue(field(name, "Homepage").startswith("https://"))
                self.assertGreater(len(field(name, "Description").splitlines()), 2)
        self.assertIn("adduser", field("sallyport", "Depends"))
        self.assertIn("bird2", field("sallyport", "Suggests"))
        for companion in rig.PROGRAMS[1:]:
            self.assertIn("sallyport", field(companion, "Recommends"))

    def test_each_package_has_its_own_files_and_they_are_those_of_root(self):
        seen = {}
        for name in rig.PROGRAMS:
            files = extracted(name)
            paths = {str(path.relative_to(files)) for path in files.rglob("*") if path.is_file()}
            wanted = {f"usr/bin/{name}", f"usr/share/bash-completion/completions/{name}",
                      f"usr/share/zsh/vendor-completions/_{name}", f"usr/share/fish/vendor_completions.d/{name}.fish",
                      f"usr/share/man/man1/{name}.1.gz", f"usr/share/doc/{name}/copyright", f"usr/share/doc/{name}/changelog.gz"}
            self.assertLessEqual(wanted, paths)
            for path in paths:
                self.assertNotIn(path, seen, f"{path} is in {name} and {seen.get(path)}")
                seen[path] = name
            listed = run("dpkg-deb", "--contents", deb(name)).splitlines()
            self.assertEqual({line.split()[1] for line in listed}, {"root/root"})
            sums = run("dpkg-deb", "--info", deb(name), "md5sums").splitlines()
            self.assertEqual({line.split("  ", 1)[1] for line in sums}, paths)
            run("md5sum", "--check", "--quiet", cwd=files, input="\n".join(sums) + "\n")
        units = {path.name for path in (extracted("sallyport") / "usr/lib/systemd/system").iterdir()}
        self.assertEqual(units, UNITS)
        for unit in UNITS:
            self.assertNotIn("/usr/local", (extracted("sallyport") / "usr/lib/systemd/system" / unit).read_text())
        # Nothing in /etc is the package's, so no upgrade asks about a file that somebody has changed.
        self.assertFalse([path for path in seen if path.startswith("etc/")])

    def test_a_companion_that_is_not_built_is_not_packaged(self):
        self.assertEqual([path.name for path in rig.packages(NEW).iterdir()], [deb(version=NEW).name])

    def test_a_wrong_call_gets_one_sentence(self):
        for words, says, code in [
            (("debs",), "usage:", 2), (("debs", "--nonsense"), "is no option", 2),
            (("debs", "/no/such", rig.folder() / "x"), "there is no program", 1),
            (("debs", "--version", "no version", rig.programs(), rig.folder() / "x"), "is no version", 1),
            (("apt-repository", "a"), "usage:", 2),
            (("apt-repository", rig.packages(), rig.folder() / "x", "/no/such"), "there is no key", 1),
            (("apt-repository", rig.packages(), rig.folder() / "x", __file__), "is no OpenPGP key", 1),
            (("apt-repository", rig.HERE, rig.folder() / "x", rig.signing_key()), "has no packages", 1),
        ]:
            with self.subTest(words):
                done = run(rig.HERE / words[0], *words[1:], check=False)
                self.assertEqual((done.returncode, says in done.stdout.splitlines()[-1]), (code, True), done.stdout)

    def test_the_manual_has_a_page_for_each_command_and_no_page_has_a_warning(self):
        if not shutil.which("groff") or not shutil.which("man"):
            print("skipped: man and groff are not there")
            self.skipTest("man and groff are not there")
        for name in rig.PROGRAMS:
            manual = extracted(name) / "usr/share/man"
            pages = sorted((manual / "man1").iterdir())
            text = b"".join(gzip.decompress(page.read_bytes()) for page in pages)
            warnings = run("groff", "-man", "-ww", "-z", "-Tutf8", "-Kutf8", input=text.decode())
            self.assertEqual(warnings, "", name)
            for page in pages:
                shown = gzip.decompress(page.read_bytes()).decode()
                for section in ("NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", '"SEE ALSO"'):
                    self.assertIn(f".SH {section}\n", shown, page.name)
                self.assertNotIn("SALLYPORT_TOKEN=", shown)
        environment = {**os.environ, "MANWIDTH": "100", "LC_ALL": "C.UTF-8", "MANROFFSEQ": ""}
        for name, command, says in [("sallyport", "sallyport-connect", "--name-label"), ("sallyport-lab", "sallyport-lab-up", "--regions"),
                                    ("sallyport-kube", "sallyport-kube", "--cluster")]:
            shown = run("man", "--no-hyphenation", "-M", extracted(name) / "usr/share/man", command, env=environment)
            self.assertIn(says, re.sub("\x1b\\[[0-9]*m|.\b", "", shown))
        names = {page.name for page in (extracted("sallyport") / "usr/share/man/man1").iterdir()}
        self.assertLessEqual({"sallyport-socket-create.1.gz", "sallyport-up.1.gz", "sallyport-edge-token-create.1.gz"}, names)

    def test_bash_completes_the_command_lines_of_each_program(self):
        def offered(name, *words):
            script = extracted(name) / "usr/share/bash-completion/completions" / name
            environment = {"PATH": f"{rig.programs()}:{os.environ['PATH']}", "HOME": str(rig.folder())}
            code = 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_TYPE=9; COMP_LINE="$*"; ' \
                   'COMP_POINT=${#COMP_LINE}; _clap_complete_${1//-/_} "$1" "${!#}" "${@: -2:1}"; printf "%s\\n" "${COMPREPLY[@]}"'
            return run("bash", "-c", code, "bash", script, *words, env=environment).split()

        self.assertEqual(offered("sallyport", "sallyport", "conn"), ["connect"])
        self.assertEqual(offered("sallyport", "sallyport", "lab", "fault", "parti"), ["partition"])
        self.assertIn("--name-label", offered("sallyport", "sallyport", "connect", "--name"))
        self.assertEqual(offered("sallyport-lab", "sallyport-lab", "fault", "parti"), ["partition"])
        self.assertEqual(offered("sallyport-kube", "sallyport-kube", "clea"), ["cleanup"])
        self.assertIn("--output", offered("sallyport-kube", "sallyport-kube", "ls", "--outp"))

    def test_lintian_finds_nothing(self):
        if not shutil.which("lintian"):
            print("skipped: lintian is not there")
            self.skipTest("lintian is not there")
        # How fast a package is packed is a matter of these tests. lintian takes long for large programs, and reads the
        # rest of a package as well beside a small one.
        ignored = "uses-no-compression-for-control-tarball,uses-no-compression-for-data-tarball"
        light = []
        for name in rig.PROGRAMS:
            files = rig.folder() / "light" / name
            shutil.copytree(extracted(name), files, ignore=lambda path, names: names if path.endswith("/usr/bin") else ())
            shutil.copy("/bin/true", files / "usr/bin" / name)
            run("dpkg-deb", "--control", deb(name), files / "DEBIAN")
            sums = (files / "DEBIAN/md5sums").read_text().splitlines()
            program = hashlib.md5(pathlib.Path("/bin/true").read_bytes()).hexdigest()
            sums = [f"{program}  usr/bin/{name}" if line.endswith(f"  usr/bin/{name}") else line for line in sums]
            (files / "DEBIAN/md5sums").write_text("\n".join(sums) + "\n")
            light.append(rig.folder() / "light" / deb(name).name)
            run("dpkg-deb", "--root-owner-group", "-Znone", "--build", files, light[-1])
        found = run("lintian", "--allow-root", "--fail-on", "error,warning", "--suppress-tags", ignored, *light, check=False)
        self.assertEqual((found.returncode, found.stdout.strip()), (0, ""))


if __name__ == "__main__":
    unittest.main(verbosity=2)
