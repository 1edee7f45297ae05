#!/usr/bin/env python3
"""The Debian packages: what is in them, and what they do to real machines. `make test` runs these.

Machines are made by scripts/machine, which needs root. Where it is missing, those tests say that they are skipped."""

import gzip
import hashlib
import io
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import threading
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import deb_rig as rig  # noqa: E402
from deb_rig import Bus, Load, Machine, Network, Origin, Quiet, deb, run, until  # noqa: E402

UNITS = {"sallyport.service", "sallyport.socket", "sallyport-http.socket", "sallyport-control.service",
         "sallyport-edge.service", "sallyport-run.service", "sallyport-router.service"}
PASSWORD = "correct horse battery"
PORT = 8443
POSTINST = "/var/lib/dpkg/info/sallyport.postinst"
OLD, NEW, NEWER = rig.VERSIONS


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
        environment = {**rig.at(OLD), "TZ": "Asia/Tokyo", "LC_ALL": "C"}
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
                                    ("sallyport-kube", "sallyport-kube", "--cluster"),
                                    ("sallyport-packet", "sallyport-packet-router-up", "--dev")]:
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
        self.assertEqual(offered("sallyport-packet", "sallyport-packet", "expl"), ["explain"])
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


class Repository(unittest.TestCase):
    """What apt of a machine without systemd makes of the repository. The machine is a folder."""

    def setUp(self):
        found = run(rig.MACHINE, "root", check=False)
        if found.returncode == 3:
            print(f"skipped: {found.stdout.strip()}")
            self.skipTest(found.stdout.strip())
        self.folder = rig.folder() / f"chroot-{self._testMethodName}"
        self.root = self.folder / "root"
        for name in ("upper", "work", "root"):
            (self.folder / name).mkdir(parents=True)
        run("mount", "-t", "overlay", "-o", f"lowerdir={found.stdout.strip()},upperdir={self.folder}/upper,workdir={self.folder}/work",
            "debs", self.root)
        self.addCleanup(run, "umount", "--lazy", self.root)
        # Only what starts systemd is missed: no package of it is needed.
        for path in ("usr/bin/systemctl", "usr/bin/systemd-run", "usr/bin/deb-systemd-helper"):
            (self.root / path).unlink(missing_ok=True)

    def chroot(self, *words, check=True, **more):
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8", **more.pop("env", {})}
        return run("chroot", self.root, *words, check=check, env=environment, **more)

    def use(self, repository, key=None):
        """Copies a repository into the machine, and makes it the one source of apt."""
        target = self.root / "srv/repository"
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(repository, target, copy_function=os.link if not os.path.ismount(self.root) else shutil.copy)
        keyring = self.root / "etc/apt/keyrings/sallyport.asc"
        keyring.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(key or repository / "sallyport.asc", keyring)
        source = (repository / "sallyport.sources").read_text()
        source = re.sub("(?m)^URIs: .*$", "URIs: file:/srv/repository", source)
        (self.root / "etc/apt/sources.list.d/sallyport.sources").write_text(source)
        shutil.rmtree(self.root / "var/lib/apt/lists", ignore_errors=True)
        return target

    def test_packages_are_installed_and_removed_where_there_is_no_systemd(self):
        self.use(rig.repository("all", OLD))
        self.chroot("apt-get", "update")
        printed = self.chroot("apt-get", "install", "--yes", *rig.PROGRAMS)
        self.assertNotRegex(printed, r"(?i)systemctl|error|warning: ")
        self.assertIn("sallyport", self.chroot("getent", "passwd", "sallyport"))
        self.assertTrue(self.chroot("sallyport", "version").startswith("sallyport "))
        self.assertIn("chaos", self.chroot("sallyport", "lab", "--help"))
        for name in rig.PROGRAMS[1:]:
            self.assertRegex(self.chroot(name, "--version"), rf"^{name} \d")
        (self.root / "etc/sallyport/services.toml").write_text("# kept\n")
        self.chroot("apt-get", "remove", "--yes", "sallyport")
        self.assertTrue((self.root / "etc/sallyport/services.toml").exists())
        self.assertFalse((self.root / "usr/bin/sallyport").exists())
        self.chroot("apt-get", "purge", "--yes", *rig.PROGRAMS)
        self.assertFalse((self.root / "etc/sallyport").exists())
        left = [path for path in self.root.rglob("*sallyport*")
                if path.is_relative_to(self.root / "usr") or path.is_relative_to(self.root / "var/lib/dpkg")]
        self.assertEqual(left, [])

    def test_apt_refuses_what_was_changed_and_what_another_key_signed(self):
        # The smallest packages of all: apt reads no program here.
        repository = rig.repository("one", NEW)
        target = self.use(repository)
        index = "dists/stable/main/binary-amd64/Packages"
        update = lambda: self.chroot("apt-get", "update", "-o", "APT::Update::Error-Mode=any", check=False)
        self.assertEqual(update().returncode, 0)
        # A package that was changed, in one byte and without a change of its size.
        package = next(target.glob("pool/main/s/sallyport/*.deb"))
        with open(package, "r+b") as file:
            file.seek(-1000, os.SEEK_END)
            file.write(b"!")
        done = self.chroot("apt-get", "install", "--yes", "sallyport", check=False)
        self.assertNotEqual(done.returncode, 0, done.stdout)
        self.assertRegex(done.stdout, "Hash Sum mismatch|hashes of expected file|unexpected size")
        self.assertNotEqual(self.chroot("dpkg", "--status", "sallyport", check=False).returncode, 0)
        # Lists that were changed.
        target = self.use(repository)
        for name in (index, f"{index}.xz"):
            (target / name).unlink()
        changed = (repository / index).read_text().replace("adduser, ", "")
        (target / index).write_text(changed)
        done = update()
        self.assertNotEqual(done.returncode, 0, done.stdout)
        self.assertRegex(done.stdout, "Hash Sum mismatch|unexpected size")
        # A signed text that was changed.
        target = self.use(repository)
        release = target / "dists/stable/InRelease"
        release.write_text(release.read_text().replace("Label: Sallyport", "Label: Sallyporx"))
        done = update()
        self.assertNotEqual(done.returncode, 0, done.stdout)
        self.assertRegex(done.stdout, "BADSIG|not signed|invalid")
        # The key of somebody else.
        stranger = rig.folder() / "stranger.asc"
        home = rig.key("stranger").parent / "gpg-stranger"
        run("gpg", "--batch", "--yes", "--armor", "--output", stranger, "--export", env={**os.environ, "GNUPGHOME": str(home)})
        self.use(repository, key=stranger)
        done = update()
        self.assertNotEqual(done.returncode, 0, done.stdout)
        self.assertRegex(done.stdout, "NO_PUBKEY|not signed")
        # And unchanged it is installed.
        self.use(repository)
        self.assertEqual(update().returncode, 0)
        self.chroot("apt-get", "install", "--yes", "--no-install-recommends", "sallyport")


class Tool(unittest.TestCase):
    """What scripts/machine does when something goes wrong."""

    def setUp(self):
        self.folder = rig.folder() / f"tool-{self._testMethodName}"
        self.folder.mkdir()
        self.machines = self.folder / "machines"

    def tool(self, *words, **environment):
        return run(rig.MACHINE, *words, check=False, env={**os.environ, "SALLYPORT_MACHINES": str(self.machines), **environment})

    @staticmethod
    def networks():
        return {line.split()[0] for line in run("ip", "netns", "list").splitlines()}

    @needs_machines
    def test_a_start_that_is_ended_leaves_nothing(self):
        net = f"tool-{os.getpid()}"
        self.addCleanup(self.tool, "clean", net)
        self.assertEqual(self.tool("network", net, "site=10.11.1.1/24").returncode, 0)
        own = f"machine-{run('cksum', input=f'{self.machines}/ended').split()[0]}"
        for number in (signal.SIGTERM, signal.SIGINT):
            # Whoever runs these tests in the background may ignore SIGINT, and programs inherit that.
            started = subprocess.Popen(["env", "--default-signal=INT", rig.MACHINE, "start", "ended", "--netns", net, "--bridge", "site",
                                        "--address", "10.11.1.2/24"], stdout=subprocess.DEVNULL,
                                       env={**os.environ, "SALLYPORT_MACHINES": str(self.machines)})
            pid = self.machines / "ended/pid"
            until("the machine to begin", lambda: started.poll() is not None or (pid.exists() and pid.read_text()))
            self.assertIn(own, self.networks())
            process = int(pid.read_text().split()[0])
            started.send_signal(number)
            self.assertEqual(started.wait(rig.PATIENCE_S), 128 + number)
            self.assertFalse(self.machines.exists())
            self.assertFalse(pathlib.Path(f"/proc/{process}/root/run").exists(), "its process has ended")
            self.assertNotIn(own, self.networks())
            self.assertNotIn(str(self.folder), pathlib.Path("/proc/self/mounts").read_text())

    @needs_machines
    def test_a_process_that_has_the_number_of_a_machine_is_left_alone(self):
        for noted in ("{}", "{} 1"):
            with subprocess.Popen(["sleep", "600"]) as stranger:
                (self.machines / "gone").mkdir(parents=True)
                (self.machines / "gone/pid").write_text(noted.format(stranger.pid) + "\n")
                self.assertEqual(self.tool("stop", "gone").returncode, 0)
                self.assertIsNone(stranger.poll(), "it was ended in place of a machine")
                stranger.kill()
            self.assertFalse(self.machines.exists())

    @needs_machines
    def test_a_network_is_whole_or_not_there(self):
        net = f"half-{os.getpid()}"
        self.addCleanup(self.tool, "clean", net)
        for site, says in (("two=nonsense", "two can have no address nonsense"), ("two", "two is no SITE=ADDRESS/LENGTH"),
                           ("a-name-that-is-too-long=10.11.1.1/24", "there can be no bridge")):
            done = self.tool("network", net, "one=10.11.1.1/24", site)
            self.assertEqual((done.returncode, says in done.stdout), (1, True), done.stdout)
            self.assertNotIn(net, self.networks())
        self.assertEqual(self.tool("network", net, "one=10.11.1.1/24").returncode, 0)
        done = self.tool("network", net, "one=10.11.1.1/24")
        self.assertEqual((done.returncode, "is there already" in done.stdout), (1, True), done.stdout)
        self.assertIn(net, self.networks(), "that of somebody else stays")

    @needs_machines
    def test_a_root_is_not_waited_for_without_an_end(self):
        # A mirror that never answers is one of debootstrap.
        (self.folder / "debootstrap").write_text("#!/bin/sh\nexec sleep 600\n")
        (self.folder / "debootstrap").chmod(0o755)
        done = self.tool("root", PATH=f"{self.folder}:{os.environ['PATH']}", SALLYPORT_TOOLS=str(self.folder / "tools"),
                         SALLYPORT_MACHINE_ROOT_LIMIT_S="1")
        self.assertEqual((done.returncode, "it took longer than 1 s: nice debootstrap" in done.stdout), (3, True), done.stdout)


class Machines(unittest.TestCase):
    """What the package does to a machine, in the order of its life there."""

    @needs_machines
    def test_a_machine_from_the_first_installation_to_the_purge(self):
        self.network = Network()
        self.addCleanup(self.network.remove)
        self.repository = rig.repository("machine", OLD)
        port, end = self.network.serve(lambda *args: Quiet(*args, directory=self.repository))
        self.addCleanup(end)
        self.machine = Machine("debs", self.network)
        self.addCleanup(self.machine.stop)
        try:
            self.installation(port)
            self.services()
            self.upgrade()
            self.half_an_upgrade()
            self.what_a_killed_upgrade_left()
            self.an_upgrade_that_is_ended()
            self.wrong_services()
            self.removal()
            self.purge()
        except BaseException:
            lines = (line for line in self.machine.log().splitlines() if not re.search(" access: | GET |… .* more", line))
            print("\n".join(list(lines)[-60:]))
            raise

    def apt(self, *words, check=True):
        return self.machine.run("env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "--yes", *words, check=check)

    def installation(self, port):
        """As docs/install.md says it; nothing is started."""
        address = f"http://127.0.0.1:{port}"
        self.machine.shell(f"""
            mkdir -p /etc/apt/keyrings
            curl -fsS -o /etc/apt/keyrings/sallyport.asc {address}/sallyport.asc
            curl -fsS {address}/sallyport.sources | sed 's,^URIs: .*,URIs: {address},' >/etc/apt/sources.list.d/sallyport.sources
            apt-get update""")
        self.apt("install", "sallyport")
        for unit in UNITS:
            self.assertFalse(self.machine.is_active(unit), unit)
        self.assertRegex(self.machine.run("getent", "passwd", "sallyport"), "/nonexistent:/usr/sbin/nologin$")
        self.assertEqual(self.machine.run("stat", "-c", "%a %U", "/etc/sallyport").strip(), "755 root")
        verified = self.machine.shell("cd /lib/systemd/system; SYSTEMD_COLORS=0 systemd-analyze verify sallyport*", check=False)
        self.assertEqual((verified.returncode, [line for line in verified.stdout.splitlines() if "sallyport" in line]), (0, []))

    def services(self):
        """Both sides of a socket as services of the machine, and a request."""
        self.machine.run("systemctl", "enable", "--now", "sallyport.service")
        for unit in ("sallyport.socket", "sallyport-http.socket", "sallyport.service"):
            self.assertTrue(self.machine.is_active(unit), unit)
        self.authority = self.machine.run("cat", "/var/lib/sallyport/ca.pem")
        for words in (("account", "create", "--name", "Ann"), ("login",)):
            self.machine.run("sallyport", *words, "--email", "ann@example.com", "--password-stdin", input=f"{PASSWORD}\n")
        token = json.loads(self.machine.run("sallyport", "token", "create", "--name", "run", "--scope", "sockets:write,tunnels:connect", "-o", "json"))
        self.origin = type("OwnOrigin", (Origin,), {})
        origin, end = self.network.serve(self.origin)
        self.addCleanup(end)
        self.machine.write("/etc/sallyport/ca.pem", self.authority)
        self.machine.write("/etc/sallyport/services.toml", f'[[service]]\nname = "shop"\nport = {origin}\n')
        self.machine.write("/etc/sallyport/run.env", f"SALLYPORT_API=https://api.localhost:{PORT}\nSALLYPORT_CA=/etc/sallyport/ca.pem\n"
                           f"SALLYPORT_TOKEN={token['token']}\n", mode="600")
        self.machine.run("systemctl", "enable", "--now", "sallyport-run.service")
        self.sockets = self.names()
        (self.host,) = self.sockets.values()

    def names(self):
        listed = json.loads(self.machine.run("sallyport", "socket", "ls", "-o", "json"))
        return {one["name"]: one["dns_name"] for one in listed}

    def upgrade(self):
        """A newer version from the repository, while clients ask: every request gets its answer."""
        before = {unit: self.machine.main_process(unit) for unit in ("sallyport", "sallyport-run")}
        load = Load(self.network, self.host, PORT, self.authority)
        try:
            slow, asking = load.slow()
            rig.repository("machine", OLD, NEW)
            self.machine.run("apt-get", "update")
            printed = self.apt("install", "--only-upgrade", "sallyport")
            self.assertIn(f"({NEW}) over ({OLD})", printed)
            for unit, process in before.items():
                self.assertNotEqual(self.machine.main_process(unit), process, unit)
                self.assertTrue(self.machine.runs_installed(unit), unit)
            load.more()
            asking.join()
        finally:
            load.end()
        print(f"upgrade: {sum(load.answers.values())} answers, {len(load.failures)} failures")
        self.assertEqual((load.failures[:5], set(load.answers)), ([], {200}))
        self.assertEqual(slow, [(200, b"ok" * Origin.SLOW_PARTS)])
        self.assertEqual(self.names(), self.sockets)

    def half_an_upgrade(self):
        """dpkg ends between the files and the scripts, then a setting keeps the new program from running."""
        self.machine.run("install", "-d", "/srv")
        port, end = self.network.serve(lambda *args: Quiet(*args, directory=rig.packages(NEWER)))
        self.addCleanup(end)
        package = f"/srv/{deb(version=NEWER).name}"
        self.machine.run("curl", "-fsS", "-o", package, f"http://127.0.0.1:{port}/{deb(version=NEWER).name}")
        load = Load(self.network, self.host, PORT, self.authority)
        try:
            before = self.machine.main_process("sallyport")
            # As if the power of dpkg had ended there.
            self.machine.run("dpkg", "--unpack", package)
            self.assertIn("unpacked", self.machine.run("dpkg-query", "--show", "--showformat=${db:Status-Status}", "sallyport"))
            load.more()
            self.assertEqual(self.machine.main_process("sallyport"), before)
            self.machine.write("/etc/sallyport/sallyport.env", "SALLYPORT_LISTEN_HTTP=nonsense\n")
            self.origin.slow_begun = False
            slow, asking = load.slow()
            until("the slow answer to begin", lambda: self.origin.slow_begun)
            printed = self.machine.run("dpkg", "--configure", "-a")
            self.assertIn("sallyport.service does not run the new program: systemctl status sallyport.service", printed)
            self.assertIn(f"ok installed {NEWER}", self.machine.run("dpkg-query", "--show", "--showformat=${Status} ${Version}", "sallyport"))
            self.assertEqual(self.machine.main_process("sallyport"), before, "it serves on")
            self.assertTrue(self.machine.runs_installed("sallyport-run"))
            load.more()
            asking.join()
            self.machine.run("rm", "/etc/sallyport/sallyport.env")
            self.machine.run("systemctl", "reload", "sallyport.service")
            self.assertTrue(self.machine.runs_installed("sallyport"))
            load.more()
        finally:
            load.end()
        print(f"half an upgrade: {sum(load.answers.values())} answers, {len(load.failures)} failures")
        self.assertEqual((load.failures[:5], set(load.answers)), ([], {200}))
        self.assertEqual(slow, [(200, b"ok" * Origin.SLOW_PARTS)])
        self.assertEqual(self.machine.run("sh", "-c", "ls /run/systemd/system | grep sallyport", check=False).stdout, "")
        # systemd knows the new process: it ends it as it should, and not as a stranger.
        self.machine.run("systemctl", "stop", "sallyport.service", "sallyport.socket", "sallyport-http.socket")
        self.assertEqual(self.machine.run("systemctl", "show", "--property", "Result", "--value", "sallyport.service").strip(), "success")
        self.machine.run("systemctl", "start", "sallyport.service")

    def bridge(self):
        """What there is of the second connector of an upgrade: its state, and its files."""
        state = self.machine.run("systemctl", "show", "--property", "ActiveState", "--value", "sallyport-upgrade.service").strip()
        return state, self.machine.run("sh", "-c", "ls /run/systemd/system | grep sallyport-upgrade", check=False).stdout.split()

    def leave_bridge(self):
        """As an upgrade that was killed leaves it."""
        self.machine.write("/run/systemd/system/sallyport-upgrade.service.d/old.conf", "[Service]\nRestart=no\n")
        self.machine.write("/run/systemd/system/sallyport-upgrade.service", "[Service]\nExecStart=/bin/sleep infinity\n")
        self.machine.run("systemctl", "daemon-reload")
        self.machine.run("systemctl", "start", "sallyport-upgrade.service")

    def what_a_killed_upgrade_left(self):
        """A second connector that nobody has stopped: the next upgrade does, although it needs none itself."""
        self.leave_bridge()
        self.machine.run("systemctl", "stop", "sallyport-run.service")
        self.machine.run(POSTINST, "configure", NEW)
        self.assertEqual(self.bridge(), ("inactive", []))
        self.machine.run("systemctl", "start", "sallyport-run.service")

    def an_upgrade_that_is_ended(self):
        """It ends while it waits for the second connector, and takes that with it."""
        settings = "/etc/systemd/system/sallyport-run.service.d/wait.conf"
        self.machine.write(settings, "[Service]\nExecStartPre=/bin/sh -c 'until test -e /run/go; do sleep 0.1; done'\n")
        self.machine.run("systemctl", "daemon-reload")
        before = self.machine.main_process("sallyport-run")
        done = []
        upgrade = threading.Thread(target=lambda: done.append(self.machine.run("sh", "-c", 'echo $$ >/run/upgrade; exec "$@"', "sh",
                                                                               POSTINST, "configure", NEW, check=False)))
        upgrade.start()
        try:
            until("the second connector to start", lambda: self.bridge()[0] == "activating")
            # As a terminal does it: to the script, and to what the script waits for.
            self.machine.shell("script=$(cat /run/upgrade); kill -TERM $script $(cat /proc/$script/task/$script/children)")
            upgrade.join(rig.PATIENCE_S)
            self.assertEqual([one.returncode for one in done], [143], done)
            self.assertEqual(self.bridge(), ("inactive", []))
            self.assertEqual(self.machine.main_process("sallyport-run"), before, "it serves on")
        finally:
            self.machine.run("touch", "/run/go")
            upgrade.join()
            self.machine.run("rm", "-r", settings.rpartition("/")[0])
            self.machine.run("systemctl", "daemon-reload")

    def wrong_services(self):
        """A file of services that the connector does not take: the connector serves on with what it has."""
        services, before = "/etc/sallyport/services.toml", self.machine.main_process("sallyport-run")
        good = self.machine.run("cat", services)
        self.machine.write(services, f"{good}[[service]]\nnonsense = 1\n")
        printed = self.machine.run("sh", "/var/lib/dpkg/info/sallyport.postinst", "configure", NEWER)
        self.assertIn(f"{services}:", printed)
        self.assertIn("sallyport-run.service does not run the new program: systemctl status sallyport-run.service", printed)
        self.assertEqual(self.machine.main_process("sallyport-run"), before)
        self.assertTrue(self.machine.is_active("sallyport-run"))
        self.machine.write(services, good)
        self.machine.run("sh", "/var/lib/dpkg/info/sallyport.postinst", "configure", NEWER)
        self.assertNotEqual(self.machine.main_process("sallyport-run"), before)
        self.assertEqual(self.names(), self.sockets)

    def removal(self):
        """A package over a running service: the service ends, settings and data stay, and come back with the package."""
        self.leave_bridge()
        self.apt("remove", "sallyport")
        self.assertEqual(self.bridge(), ("inactive", []))
        self.assertEqual(self.machine.run("pgrep", "--exact", "sallyport", check=False).stdout, "")
        self.assertEqual(self.machine.run("systemctl", "list-units", "--no-legend", "--plain", "sallyport*.service", "sallyport*.socket").strip(), "")
        self.machine.run("test", "-s", "/etc/sallyport/run.env", "-a", "-d", "/var/lib/private/sallyport")
        self.apt("install", "sallyport")
        self.machine.run("systemctl", "start", "sallyport.service", "sallyport-run.service")
        self.assertEqual(self.names(), self.sockets)

    def purge(self):
        """Settings go; data goes only where that is asked for, in the one word that asks for it."""
        data = "/var/lib/private/sallyport"
        printed = self.apt("purge", "sallyport")
        self.assertIn(f"accounts, keys and logs stay, since nothing can restore them: {data} /var/lib/sallyport", printed)
        self.assertIn(f"to remove them too: sudo rm -rf {data} /var/lib/sallyport\n", printed)
        self.machine.run("test", "!", "-e", "/etc/sallyport", "-a", "-d", data)
        self.assertEqual(self.machine.run("find", "/etc/systemd/system", "-name", "sallyport*"), "")
        self.machine.write("/etc/systemd/system/sallyport-run.service", "[Service]\nExecStart=/usr/local/bin/sallyport run x\n")
        self.assertIn("units in /etc/systemd/system come before those of this package", self.apt("install", "sallyport"))
        self.machine.run("rm", "/etc/systemd/system/sallyport-run.service")
        for word, stays in (("true", True), ("yes", False)):
            self.apt("install", "sallyport")
            printed = self.machine.run("env", f"SALLYPORT_PURGE_DATA={word}", "apt-get", "--yes", "purge", "sallyport")
            self.assertIn("only yes removes data" if stays else "data is removed too", printed)
            there = self.machine.run("sh", "-c", f"test -e {data} -o -e /var/lib/sallyport -o -L /var/lib/sallyport", check=False)
            self.assertEqual(there.returncode == 0, stays)


class Fleet(unittest.TestCase):
    """A control, an edge and a connector as services of one machine, over a bus."""

    DOMAIN = "tunnels.example.com"
    AUTHORITY = "/etc/sallyport/ca.pem"

    @needs_machines
    def test_control_edge_and_connector_are_upgraded_under_load(self):
        network = Network()
        self.addCleanup(network.remove)
        try:
            bus = Bus(network)
        except LookupError as missing:
            print(f"skipped: {missing}")
            self.skipTest(str(missing))
        self.addCleanup(bus.stop)
        names = " ".join(f"{name}.{self.DOMAIN}" for name in ("api", "login", "tunnel", "control"))
        rig.packages(NEW)
        self.machine = Machine("fleet", network, hosts=f"127.0.0.1 {names}\n", bind=f"{rig.folder()}:/srv")
        self.addCleanup(self.machine.stop)
        try:
            host = self.start(network)
            self.upgrade(network, host)
        except BaseException:
            lines = (line for line in self.machine.log().splitlines() if not re.search(" access: | GET |… .* more", line))
            print("\n".join(list(lines)[-60:]))
            raise

    def sallyport(self, *words, **more):
        return self.machine.run("env", f"SALLYPORT_API=https://api.{self.DOMAIN}:{PORT}", f"SALLYPORT_CA={self.AUTHORITY}",
                                "sallyport", *words, **more)

    def start(self, network):
        """The three services; the name of the socket."""
        machine = self.machine
        machine.run("dpkg", "--install", f"/srv/debs-{OLD}/{deb().name}")
        machine.write("/etc/sallyport/control.env", f"SALLYPORT_DOMAIN={self.DOMAIN}\nSALLYPORT_BUS=nats://127.0.0.1:{Bus.PORT}\n"
                      f"SALLYPORT_ADVERTISE=control.{self.DOMAIN}:8444\n", mode="600")
        machine.run("systemctl", "start", "sallyport-control.service")
        self.authority = machine.run("cat", "/var/lib/sallyport-control/ca.pem")
        machine.write(self.AUTHORITY, self.authority)
        setup = machine.run("cat", "/var/lib/sallyport-control/setup-token").strip()
        person = ("--email", "ann@example.com", "--password-stdin")
        self.sallyport("account", "create", "--name", "Ann", "--setup-token", setup, *person, input=f"{PASSWORD}\n")
        self.sallyport("login", *person, input=f"{PASSWORD}\n")
        join = json.loads(self.sallyport("edge", "token", "create", "--region", "eu", "-o", "json"))["token"]
        machine.write("/etc/sallyport/edge.env", f"SALLYPORT_JOIN={join}\nSALLYPORT_REGION=eu\nSALLYPORT_NAME=eu-1\n"
                      "SALLYPORT_ADVERTISE=127.0.0.1:443\n", mode="600")
        machine.run("systemctl", "start", "sallyport-edge.service")
        origin, end = network.serve(Origin)
        self.addCleanup(end)
        token = json.loads(self.sallyport("token", "create", "--name", "run", "--scope", "sockets:write,tunnels:connect", "-o", "json"))
        machine.write("/etc/sallyport/services.toml", f'[[service]]\nname = "shop"\nport = {origin}\n')
        machine.write("/etc/sallyport/run.env", f"SALLYPORT_API=https://api.{self.DOMAIN}:{PORT}\nSALLYPORT_CA={self.AUTHORITY}\n", mode="600")
        machine.write("/etc/sallyport/token.env", f"SALLYPORT_TOKEN={token['token']}\n", mode="600")
        # A drop-in that the connector needs, with a name that a shell takes for several.
        machine.write("/etc/systemd/system/sallyport-run.service.d/of us *.conf", "[Service]\nEnvironmentFile=/etc/sallyport/token.env\n")
        machine.run("systemctl", "daemon-reload")
        machine.run("systemctl", "start", "sallyport-run.service")
        (socket,) = json.loads(self.sallyport("socket", "ls", "-o", "json"))
        return socket["dns_name"]

    def upgrade(self, network, host):
        """A newer version: clients, and those who ask the API, notice nothing."""
        units = ("sallyport-control", "sallyport-edge", "sallyport-run")
        before = {unit: self.machine.main_process(unit) for unit in units}
        loads = [Load(network, host, 443, self.authority),
                 Load(network, f"api.{self.DOMAIN}", PORT, self.authority, path="/v1/info", body=b"version")]
        try:
            slow, asking = loads[0].slow()
            printed = self.machine.run("dpkg", "--install", f"/srv/debs-{NEW}/{deb(version=NEW).name}")
            for words in ("cannot stat", "sallyport-upgrade", "no second connector"):
                self.assertNotIn(words, printed)
            for unit in units:
                self.assertNotEqual(self.machine.main_process(unit), before[unit], unit)
                self.assertTrue(self.machine.runs_installed(unit), unit)
            for load in loads:
                load.more()
            asking.join()
        finally:
            for load in loads:
                load.end()
        for name, load in zip(("a socket", "the API"), loads):
            print(f"upgrade of control, edge and connector: {sum(load.answers.values())} answers of {name}, {len(load.failures)} failures")
            self.assertEqual((load.failures[:5], set(load.answers)), ([], {200}))
        self.assertEqual(slow, [(200, b"ok" * Origin.SLOW_PARTS)])
        edges = json.loads(self.sallyport("edge", "ls", "-o", "json"))
        self.assertEqual([edge["name"] for edge in edges], ["eu-1"])


def together(*groups):
    """Runs groups of tests beside one another, since most of them wait; True if all have passed."""
    for version in rig.VERSIONS:
        rig.packages(version)
    rig.signing_key()
    loader, results = unittest.defaultTestLoader, []

    def test(group):
        printed = io.StringIO()
        suite = unittest.TestSuite(loader.loadTestsFromTestCase(case) for case in group)
        result = unittest.TextTestRunner(printed, verbosity=2).run(suite)
        results.append(result.wasSuccessful())
        print(printed.getvalue(), flush=True)

    threads = [threading.Thread(target=test, args=[group]) for group in groups]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results.count(True) == len(groups)


if __name__ == "__main__":
    rig.folder()
    if len(sys.argv) > 1:
        unittest.main(verbosity=2)
    elif not together((Contents,), (Tool, Repository, Fleet), (Machines,)):
        sys.exit(1)
