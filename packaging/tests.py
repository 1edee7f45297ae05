#!/usr/bin/env python3
"""Makes a release of built programs twice, verifies it, changes it, and runs its images. `make test` runs these.

SALLYPORT_BUILT is the folder of the programs [default: target/debug]."""

import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest
import zipfile

import image_rig
from image_rig import USER, Bundle, status_of, waited

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
BUILT = pathlib.Path(os.environ.get("SALLYPORT_BUILT", ROOT / "target/debug"))
PROGRAMS = ("sallyport", "sallyport-kube", "sallyport-lab", "sallyport-packet")
NEEDED = ["gpg", "clang", "strip", "dpkg-dev", "apt-ftparchive", "xz", "buildah", "umoci", "runc", "go", "curl", "faketime"]
LATER = "+500d"
# A path of a package of cargo in a program, where this machine or a release build put it.
CRATE = re.compile(rb"registry/src/[^/\0]+/([A-Za-z0-9_-]+?)-([0-9]+\.[0-9]+\.[0-9]+[A-Za-z0-9.+-]*)/")

folder, built, key, public, other_key, other_public, first, second = (None,) * 8


def run(*command, **more):
    """Runs a program: its exit code and what it printed."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more)
    return done.returncode, done.stdout


def good(*command, **more):
    """Runs a program that must succeed."""
    code, said = run(*command, **more)
    assert code == 0, (command, said)
    return said


def make_key(name):
    """A secret key, and its public half."""
    with tempfile.TemporaryDirectory() as home:
        gpg = ["gpg", "--batch", "--homedir", home, "--passphrase", ""]
        secret, half = folder / f"{name}.secret.asc", folder / f"{name}.pub"
        # Of a time before that of the release, so that signatures have the time of the release.
        good(*gpg, "--faked-system-time", "20260101T000000", "--quick-generate-key", f"{name} <{name}@example.com>", "ed25519", "sign", "never")
        good(*gpg, "--armor", "--output", secret, "--export-secret-keys")
        good(*gpg, "--armor", "--output", half, "--export")
        run("gpgconf", "--homedir", home, "--kill", "all")
    return secret, half


def copy_of_checkout(target):
    """This checkout in another folder, with what is not committed."""
    good("git", "clone", "--quiet", "--no-hardlinks", ROOT, target)
    listed = subprocess.run(["git", "ls-files", "-z", "--modified", "--others", "--exclude-standard"], cwd=ROOT, check=True,
                            stdout=subprocess.PIPE, text=True).stdout
    for name in filter(None, listed.split("\0")):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).exists():
            shutil.copy2(ROOT / name, target / name)
        else:
            (target / name).unlink()
    return target


def release(checkout, dist, *before, **environment):
    """Makes a release of the built programs."""
    return good(*before, checkout / "packaging/release", "--fast", "--changed", "--any-base", "--key", key, "--binaries", built, dist,
                env={**os.environ, **environment})


def real_clock_for_rust():
    """A PATH whose cargo and rustc have the real clock: their allocator and libfaketime wait for one another for ever."""
    shims = folder / "shims"
    shims.mkdir()
    for name in ("cargo", "rustc"):
        (shims / name).write_text(f'#!/bin/sh\nunset LD_PRELOAD\nexec "{shutil.which(name)}" "$@"\n')
        (shims / name).chmod(0o755)
    return f"{shims}:{os.environ['PATH']}"


def setUpModule():
    global folder, built, key, public, other_key, other_public, first, second
    if os.geteuid() != 0:
        print("skipped: images are made and run by root")
        raise unittest.SkipTest("not root")
    if run(ROOT / "scripts/need", *NEEDED)[0]:
        if "CI" in os.environ:
            raise LookupError(f"not all of {NEEDED} are there")
        print(f"skipped: not all of {NEEDED} are there")
        raise unittest.SkipTest("tools are missing")
    if not all((BUILT / name).exists() for name in PROGRAMS):
        good("cargo", "build", "--locked", *(word for name in PROGRAMS for word in ("--package", name)), cwd=ROOT)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="sallyport-release."))
    os.chmod(folder, 0o755)
    unittest.addModuleCleanup(shutil.rmtree, folder, ignore_errors=True)
    built = folder / "built"
    good(HERE / "binaries", "--from", BUILT, built)
    key, public = make_key("first")
    other_key, other_public = make_key("other")
    first, second = folder / "first", folder / "second/with/a longer/name"
    # Both are copies of one moment: somebody may change files meanwhile.
    one, another = copy_of_checkout(folder / "one"), folder / "another checkout"
    shutil.copytree(one, another, symlinks=True)
    started = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor() as both:
        here = both.submit(release, one, first)
        there = both.submit(release, another, second, "faketime", "-f", LATER, TZ="Asia/Tokyo", LANG="de_DE.UTF-8", NO_FAKE_STAT="1",
                            PATH=real_clock_for_rust(), HOME=str(folder), XDG_CACHE_HOME=str(pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache"))),
                            CARGO_HOME=os.environ.get("CARGO_HOME", str(pathlib.Path.home() / ".cargo")),
                            RUSTUP_HOME=os.environ.get("RUSTUP_HOME", str(pathlib.Path.home() / ".rustup")))
        here.result(), there.result()
    print(f"two releases in {time.monotonic() - started:.0f} s")


def digests(dist):
    """The digest of each file."""
    found = {}
    for path in dist.rglob("*"):
        if path.is_file():
            with open(path, "rb") as file:
                found[str(path.relative_to(dist))] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


def verify(dist, by=None):
    """The exit code of the verification, and its last line."""
    code, said = run(HERE / "verify", "--key", by or public, dist)
    return code, said.strip().splitlines()[-1]


class Changed:
    """A copy of the first release to change; unchanged files are links to the same content."""

    def __enter__(self):
        self.dist = pathlib.Path(tempfile.mkdtemp(dir=folder))
        shutil.copytree(first, self.dist, copy_function=os.link, dirs_exist_ok=True)
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.dist)

    def write(self, name, content):
        """Replaces a file, not what the link is of."""
        path = self.dist / name
        path.unlink(missing_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())

    def flip(self, name, at=0.5):
        """Changes one bit of a file."""
        content = bytearray((self.dist / name).read_bytes())
        content[int(len(content) * at)] ^= 1
        self.write(name, bytes(content))

    def sign_again(self, provenance=True):
        """What somebody with the key could publish: checksums, provenance and signature of what is there now."""
        if provenance:
            (statement,) = self.dist.glob("*.intoto.json")
            said, now = json.loads(statement.read_text()), digests(self.dist)
            said["subject"] = [{"name": name, "digest": {"sha256": digest}} for name, digest in sorted(now.items())
                               if not name.startswith("SHA256SUMS") and name != statement.name]
            self.write(statement.name, json.dumps(said))
        (self.dist / "SHA256SUMS").unlink()
        good(HERE / "checksums", self.dist)
        self.sign("SHA256SUMS")
        return self

    def sign(self, name, form="--detach", end=".asc"):
        """Signs a file of it with the key of the release."""
        (self.dist / f"{name}{end}").unlink(missing_ok=True)
        good(HERE / "sign", key, form, self.dist / name, self.dist / f"{name}{end}", env={**os.environ, "SOURCE_DATE_EPOCH": str(int(time.time()))})


class Releases(unittest.TestCase):
    """What a release has, and that it is the same twice."""

    def test_two_folders_and_two_days_give_the_same_bytes(self):
        one, two = digests(first), digests(second)
        self.assertEqual(one.keys(), two.keys())
        self.assertEqual({name for name in one if one[name] != two[name]}, set())
        for part in ("sallyport-.*-x86_64-linux.tar.gz", "deb/sallyport_.*_amd64.deb", "deb/sallyport-kube_.*.deb", "deb/sallyport-packet_.*.deb", "apt/dists/stable/InRelease",
                     "images/sallyport-[0-9].*.oci.tar", "images/sallyport-kube-.*.oci.tar", "chart/.*.tgz", "chart/.*.tgz.prov",
                     "terraform/.*_linux_amd64.zip", "terraform/.*_SHA256SUMS.sig", "sbom/sallyport.cdx.json", ".*.intoto.json", "SHA256SUMS.asc"):
            self.assertTrue([name for name in one if re.fullmatch(part, name)], f"{part} is not in {sorted(one)}")

    def test_a_release_is_verified_and_nothing_names_this_machine(self):
        code, said = verify(first)
        self.assertEqual((code, "is whole" in said), (0, True), said)
        for name in digests(first):
            if name.endswith((".json", ".prov", "SHA256SUMS", "Packages", "sallyport.sources")):
                for secret in (str(ROOT), str(folder), str(pathlib.Path.home() / ".cargo")):
                    self.assertNotIn(secret, (first / name).read_text(), name)

    def test_the_provenance_names_what_made_the_programs(self):
        (statement,) = first.glob("*.intoto.json")
        tools = json.loads(statement.read_text())["predicate"]["buildDefinition"]["internalParameters"]["tools"]
        # clang makes the programs for the kernel in sallyport-packet.
        self.assertLessEqual({"rustc", "cc", "ld", "clang", "go", "buildah", "dpkg-deb", "xz"}, set(tools))
        self.assertIn("clang version", tools["clang"])

    def test_the_archive_has_what_is_installed(self):
        (archive,) = first.glob("*.tar.gz")
        top = archive.name.removesuffix(".tar.gz")
        with tarfile.open(archive) as tar:
            members = {member.name.removeprefix(f"{top}/"): member for member in tar}
            self.assertEqual({(member.uid, member.gid, member.uname) for member in members.values()}, {(0, 0, "")})
            self.assertEqual(len({member.mtime for member in members.values()}), 1)
            for name in ("bin/sallyport", "bin/sallyport-kube", "bin/sallyport-lab", "bin/sallyport-packet", "LICENSE", "README.md", "INSTALL",
                         "share/bash-completion/completions/sallyport", "share/man/man1/sallyport.1", "lib/systemd/system/sallyport.service"):
                self.assertIn(name, members)
            tar.extractall(folder / "unpacked")
        self.assertIn("sallyport ", good(folder / "unpacked" / top / "bin/sallyport", "version"))

    def test_helm_verifies_the_chart_and_its_image_is_of_the_release(self):
        helm = good(ROOT / "scripts/tools", "helm").strip().splitlines()[-1]
        (chart,) = first.glob("chart/*.tgz")
        ring = folder / "ring.gpg"
        good("gpg", "--batch", "--yes", "--output", ring, "--dearmor", public)
        self.assertIn("Chart Hash Verified", good(helm, "verify", "--keyring", ring, chart))
        rendered = good(helm, "template", "it", chart, "--set", "cluster=c,api=https://api.example.com,token.existingSecret=s")
        version = good(HERE / "version").strip()
        self.assertEqual(set(re.findall(r"image: (\S+)", rendered)), {f'"sallyport/sallyport-kube:{version}"'})
        self.assertTrue((first / f"images/sallyport-kube-{version}.oci.tar").exists())

    def test_the_provider_says_its_version(self):
        (archive,) = first.glob("terraform/*.zip")
        with zipfile.ZipFile(archive) as zipped:
            (name,) = [name for name in zipped.namelist() if name.startswith("terraform-provider-")]
            program = pathlib.Path(zipped.extract(name, folder))
        program.chmod(0o755)
        version = good(HERE / "version").strip()
        self.assertEqual(name, f"terraform-provider-sallyport_v{version}")
        self.assertEqual(good(program, "-version").split(), ["terraform-provider-sallyport", version])

    def test_terraform_finds_the_provider_in_the_mirror(self):
        if shutil.which("terraform") is None:
            self.skipTest("terraform is not there")
        home, work = folder / "home of terraform", folder / "configuration"
        shutil.copytree(first / "terraform/mirror", home / ".terraform.d/plugins")
        work.mkdir()
        shutil.copy(ROOT / "integrations/terraform/examples/provider/provider.tf", work)
        # No network: a source that the mirror lacks would be asked for at its host.
        said = good("unshare", "--net", "terraform", f"-chdir={work}", "init", "-no-color",
                    env={"PATH": os.environ["PATH"], "HOME": str(home), "CHECKPOINT_DISABLE": "1"})
        self.assertIn(f"Installed sallyport.dev/sallyport/sallyport v{good(HERE / 'version').strip()} (unauthenticated)", said)

    def test_each_crate_whose_code_is_in_a_program_is_among_its_components(self):
        for name in PROGRAMS:
            listed = {(one["name"], one["version"]) for one in json.loads((first / f"sbom/{name}.cdx.json").read_text())["components"]}
            inside = {(crate.decode(), version.decode()) for crate, version in CRATE.findall((built / name).read_bytes())}
            self.assertGreater(len(inside), 20, name)
            # Crates that tests use switch on features of others, and these programs may be built along with tests.
            tree = good("cargo", "tree", "--locked", "--package", name, "--edges", "normal,dev", "--prefix", "none", "--format", "{p}", cwd=ROOT)
            of_tests = {(crate, version) for crate, version in re.findall(r"^(\S+) v(\S+)", tree, re.MULTILINE)}
            self.assertEqual(inside - listed - of_tests, set(), name)
            self.assertNotIn("syn", {crate for crate, _ in listed}, "a part of the compiler's macros is not shipped")

    def test_what_cannot_be_released_is_refused(self):
        downloads = folder / "downloads"
        downloads.mkdir()
        (downloads / "SHA256SUMS").write_text("of something else")
        for words, arguments in (("is no option", ["--quick", folder / "x"]), ("there is no key", ["--changed", "--key", folder / "none", folder / "x"]),
                                 ("has no secret key", ["--changed", "--key", public, folder / "x"]),
                                 ("is no OpenPGP key", ["--changed", "--key", HERE / "release", folder / "x"]),
                                 ("is not empty and has no release", ["--changed", "--key", key, built]),
                                 ("is not empty and has no release", ["--changed", "--key", key, "--binaries", HERE, downloads]),
                                 ("there is no program", ["--changed", "--key", key, "--binaries", HERE, folder / "x"]), ("usage", [])):
            code, said = run(HERE / "release", *arguments)
            self.assertNotEqual(code, 0, words)
            self.assertIn(words, said)
        self.assertFalse((folder / "x").exists())
        changed = folder / "another checkout"
        (changed / "README.md").write_text("changed")
        code, said = run(changed / "packaging/release", folder / "x")
        self.assertEqual((code, "a release is of a commit" in said), (1, True), said)


class Faults(unittest.TestCase):
    """What steps of a release do when something of the machine is wrong."""

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=folder))

    def test_a_package_of_the_base_that_is_not_as_debian_lists_it(self):
        said = run("apt-cache", "show", "--no-all-versions", "ca-certificates")[1]
        if "SHA256: " not in said:
            good("apt-get", "update")
            said = good("apt-cache", "show", "--no-all-versions", "ca-certificates")
        newest = re.search(r"^Version: (.*)$", said, re.MULTILINE)[1]
        shutil.copy(HERE / "image-base", self.folder)
        (self.folder / "image-base.lock").write_text(f"ca-certificates 0 {'0' * 64}\n")
        cache = self.folder / "tools/image-base"
        cache.mkdir(parents=True)
        (cache / f"ca-certificates_{newest}_all.deb").write_text("half of it")
        environment = {**os.environ, "SALLYPORT_TOOLS": str(cache.parent)}
        code, said = run(self.folder / "image-base", "--any", env=environment)
        self.assertEqual((code, "has another digest than the lists of Debian say" in said), (1, True), said)
        (self.folder / "image-base.lock").write_text(f"no-such-package 0 {'0' * 64}\n")
        code, said = run(self.folder / "image-base", "--any", env=environment)
        self.assertEqual((code, "apt knows no package of this name" in said), (1, True), said)
        self.assertEqual(list(cache.glob("use.*")), [], "nothing is left")

    def test_a_packet_path_that_was_built_without_clang(self):
        for name in ("sallyport", "sallyport-packet"):
            shutil.copy("/bin/true", self.folder / name)
        code, said = run(HERE / "binaries", "--from", self.folder, self.folder / "out")
        self.assertEqual((code, said.count("\n")), (1, 1), said)
        self.assertIn("sallyport-packet was built without clang, and would forward nothing", said)
        self.assertFalse((self.folder / "out/sallyport-packet").exists())

    def test_programs_of_a_release_are_not_built_without_clang(self):
        tools = self.folder / "tools"
        tools.mkdir()
        for name in ("bash", "dirname", "mkdir", "realpath", "git"):
            (tools / name).symlink_to(shutil.which(name))
        code, said = run(HERE / "binaries", self.folder / "out", env={**os.environ, "PATH": str(tools)})
        self.assertEqual((code, said.count("\n")), (1, 1), said)
        self.assertIn("the packet path needs them: scripts/need clang", said)

    def test_a_build_of_an_image_that_leaves_mounts_removes_nothing_behind_them(self):
        # A buildah that ends where the real one has mounted something below its store.
        precious = self.folder / "precious"
        precious.mkdir()
        (precious / "file").write_text("kept")
        (self.folder / "buildah").write_text('#!/bin/sh\nmkdir -p "$2/one" "$2/two"\nmount --bind "$PRECIOUS" "$2/one"\n'
                                             'mount -t tmpfs store "$2/two"\necho "buildah was ended"\nexit 1\n')
        (self.folder / "buildah").chmod(0o755)
        below = self.folder / "tmp"
        below.mkdir()
        environment = {**os.environ, "PATH": f"{self.folder}:{os.environ['PATH']}", "PRECIOUS": str(precious), "TMPDIR": str(below),
                       "SOURCE_DATE_EPOCH": "1"}
        code, said = run(HERE / "images", "--any-base", built, self.folder / "out", env=environment)
        mounted = [line.split()[4] for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines() if str(below) in line.split()[4]]
        for mount in reversed(mounted):
            run("umount", "--lazy", mount)
        self.assertEqual((code, "buildah was ended" in said), (1, True), said)
        self.assertEqual((mounted, (precious / "file").read_text()), ([], "kept"))
        self.assertEqual(list(below.iterdir()), [])


class Tampering(unittest.TestCase):
    """What a verification says of a release that is not as it was signed."""

    def refused(self, words, dist, by=None):
        code, said = verify(dist, by)
        self.assertEqual((code, words in said), (1, True), said)

    def test_one_bit_of_each_file(self):
        def one(name):
            with Changed() as changed:
                changed.flip(name, 0.3)
                return name, *verify(changed.dist)
        with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
            for name, code, said in pool.map(one, sorted(digests(first))):
                self.assertEqual(code, 1, name)
                if name == "SHA256SUMS":
                    self.assertRegex(said, "does not fit SHA256SUMS|is no digest with the name", name)
                elif name == "SHA256SUMS.asc":
                    self.assertRegex(said, "no OpenPGP signature|does not fit|another key", name)
                else:
                    self.assertIn(f"{name} was changed", said)

    def test_a_file_that_is_gone_or_new_or_a_link(self):
        for name in digests(first):
            if not name.startswith("SHA256SUMS") and "/dists/" not in name:
                with Changed() as changed:
                    (changed.dist / name).unlink()
                    self.refused(f"{name} is missing", changed.dist)
        for name in ("new.txt", "deb/sallyport-extra_0.1.0_amd64.deb"):
            with Changed() as changed:
                changed.write(name, "new")
                self.refused(f"{name} does not belong to the release", changed.dist)
        with Changed() as changed:
            (changed.dist / "release.pub").unlink()
            (changed.dist / "release.pub").symlink_to(first / "release.pub")
            self.refused("release.pub is not a plain file", changed.dist)

    def test_signatures_of_others_and_of_other_things(self):
        with Changed() as changed:
            changed.sign("SHA256SUMS")
            self.assertEqual(verify(changed.dist)[0], 0)
            changed.write("other", "of the same key")
            changed.sign("other")
            (changed.dist / "other.asc").replace(changed.dist / "SHA256SUMS.asc")
            (changed.dist / "other").unlink()
            self.refused("SHA256SUMS.asc does not fit SHA256SUMS", changed.dist)
            (changed.dist / "SHA256SUMS.asc").unlink()
            good(HERE / "sign", other_key, "--detach", changed.dist / "SHA256SUMS", changed.dist / "SHA256SUMS.asc",
                 env={**os.environ, "SOURCE_DATE_EPOCH": str(int(time.time()))})
            self.refused("is of another key than", changed.dist)
            (changed.dist / "SHA256SUMS.asc").unlink()
            self.refused("SHA256SUMS.asc is missing: the release is not signed", changed.dist)
        self.refused("is of another key than", first, other_public)
        self.refused("there is no key", first, folder / "none")
        self.refused("is no OpenPGP key", first, HERE / "release")
        self.refused("there is no folder", folder / "none")
        self.refused("has no SHA256SUMS: it is no release", built)
        code, said = run(HERE / "verify", first, env={**os.environ, "SALLYPORT_RELEASE_KEY": str(folder / "none")})
        self.assertEqual(code, 1)
        self.assertIn("there is no key to verify by", said)

    def test_parts_that_do_not_agree_though_they_are_signed(self):
        with Changed() as changed:
            changed.write("chart/values.yaml", "new")
            self.refused("do not name the same files: chart/values.yaml", changed.sign_again(provenance=False).dist)
        for name in ("release.pub", "apt/sallyport.asc"):
            with Changed() as changed:
                changed.write(name, other_public.read_bytes())
                self.refused(f"{name} is another key", changed.sign_again().dist)
        with Changed() as changed:
            changed.flip("apt/sallyport.sources")
            self.refused("is about another", changed.sign_again(provenance=False).dist)
        with Changed() as changed:
            changed.flip("terraform/" + next(first.glob("terraform/*_manifest.json")).name)
            self.refused("is of another terraform-provider-sallyport", changed.sign_again().dist)

    def test_components_that_are_not_those_of_the_lock_file(self):
        for name, words, change in (
                ("sallyport.cdx.json", "lacks", lambda parts: parts.pop(7)),
                ("sallyport-kube.cdx.json", "which is not in Cargo.lock", lambda parts: parts.append({**parts[3], "name": "left-pad"})),
                ("sallyport-kube.cdx.json", "has a component twice", lambda parts: parts.append(parts[3])),
                ("sallyport-lab.cdx.json", "another checksum", lambda parts: next(one for one in parts if "hashes" in one)["hashes"][0].update(content="0" * 64)),
                ("terraform-provider-sallyport.cdx.json", "lacks", lambda parts: parts.pop(1)),
                ("terraform-provider-sallyport.cdx.json", "another sum", lambda parts: parts[0]["properties"][0].update(value="h1:x"))):
            with Changed() as changed:
                said = json.loads((changed.dist / "sbom" / name).read_text())
                change(said["components"])
                changed.write(f"sbom/{name}", json.dumps(said))
                changed.sign_again()
                code, last = verify(changed.dist)
                self.assertEqual((code, name in last, words in last), (1, True, True), last)

    def test_an_apt_repository_of_other_packages(self):
        (deb,) = first.glob("apt/pool/main/s/sallyport/sallyport_*.deb")
        name = str(deb.relative_to(first))
        with Changed() as changed:
            changed.flip(name)
            self.refused(f"is not of the packages in the pool: {name}", changed.sign_again().dist)
        with Changed() as changed:
            index = "apt/dists/stable/main/binary-amd64/Packages"
            changed.write(index, (first / index).read_text().replace("Package: sallyport-lab", "Package: sallyport-bal"))
            self.refused(f"{index} is not the index that InRelease names", changed.sign_again().dist)

    def test_a_release_of_another_version_than_wanted(self):
        version = good(HERE / "version").strip()
        self.assertEqual(run(HERE / "verify", "--key", public, "--version", version, first)[0], 0)
        code, said = run(HERE / "verify", "--key", public, "--version", "99.0.0", first)
        self.assertEqual((code, f"is version {version}, and version 99.0.0 is wanted" in said), (1, True), said)

    def test_text_around_the_signed_text_counts_for_nothing(self):
        # gpg says that the signature is good, for it skips what is before and after.
        index = "apt/dists/stable/main/binary-amd64/Packages"
        with Changed() as changed:
            changed.write(index, (first / index).read_text().replace("Section: net", "Section: web"))
            digest = digests(changed.dist)[index]
            signed = (first / "apt/dists/stable/InRelease").read_text()
            changed.write("apt/dists/stable/InRelease", f"{signed}\n {digest} 1 main/binary-amd64/Packages\n")
            self.refused(f"{index} is not the index that InRelease names", changed.sign_again().dist)
        (chart,) = first.glob("chart/*.tgz")
        with Changed() as changed:
            changed.flip(f"chart/{chart.name}")
            digest = digests(changed.dist)[f"chart/{chart.name}"]
            signed = (first / f"chart/{chart.name}.prov").read_text()
            changed.write(f"chart/{chart.name}.prov", f"  {chart.name}: sha256:{digest}\n\n{signed}")
            self.refused(f"{chart.name}.prov is of another chart", changed.sign_again().dist)

    def test_a_chart_without_its_image(self):
        (image,) = first.glob("images/sallyport-kube-*.oci.tar")
        with Changed() as changed:
            (changed.dist / image.relative_to(first)).unlink()
            self.refused("runs the image sallyport/sallyport-kube, which the release does not have", changed.sign_again().dist)

    def test_two_first_releases_at_once_have_one_key(self):
        words = ["bash", "-c", f'"{HERE}/key" "$0" & "{HERE}/key" "$1"; wait', folder / "key.a", folder / "key.b"]
        good(*words, env={**os.environ, "SALLYPORT_RELEASE_KEY": str(folder / "made/secret.asc")})
        self.assertEqual((folder / "key.a").read_bytes(), (folder / "key.b").read_bytes())

    def test_an_image_whose_digests_do_not_fit(self):
        (image,) = first.glob("images/sallyport-kube-*.oci.tar")
        name = str(image.relative_to(first))
        with tarfile.open(image) as tar:
            layer = max((member for member in tar if member.isfile()), key=lambda member: member.size)
        for words, at in ((f"has another content of {layer.name}", layer.offset_data + layer.size // 2),):
            with Changed() as changed:
                content = bytearray(image.read_bytes())
                content[at] ^= 1
                changed.write(name, bytes(content))
                self.refused(words, changed.sign_again().dist)
        with Changed() as changed:
            changed.write(name, b"no archive")
            self.refused("is no archive of an image", changed.sign_again().dist)
        with Changed() as changed:
            (other,) = first.glob("images/sallyport-[0-9]*.oci.tar")
            # Names an image of root: the content that its manifest names must be another.
            content = other.read_bytes().replace(b'"User":"65532:65532"', b'"User":"00000:00000"')
            changed.write(str(other.relative_to(first)), content)
            self.refused("has another content of blobs/", changed.sign_again().dist)


class Images(unittest.TestCase):
    """The images by runc: read-only, not root, no capabilities, no new privileges."""

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=folder))
        os.chmod(self.folder, 0o755)

    def bundle(self, name):
        (archive,) = first.glob(f"images/{name}-[0-9]*.oci.tar")
        (self.folder / name).mkdir()
        return Bundle(archive, self.folder / name)

    def data(self, name):
        path = self.folder / name
        path.mkdir(mode=0o700)
        os.chown(path, USER, USER)
        return path

    def test_the_controller_runs(self):
        bundle = self.bundle("sallyport-kube")
        code, said = bundle.run(["--help"])
        self.assertEqual((code, "Usage" in said), (0, True), said)
        code, said = bundle.run([])
        self.assertNotEqual(code, 0)
        self.assertIn("cluster", said)
        # As the chart calls it.
        code, said = bundle.run(["cleanup", "--help"], command=["sallyport-kube"])
        self.assertEqual((code, "--keep-sockets" in said), (0, True), said)

    def test_a_request_from_an_edge_to_a_connector_in_containers(self):
        bundle = self.bundle("sallyport")
        server, client = self.data("server"), self.data("client")
        up = bundle.container(["up", "--listen", "127.0.0.1:8443", "--listen-http", "none"], data=server)
        self.addCleanup(up.end)
        inside = up.pid()
        within = ["nsenter", "--target", str(inside), "--net"]
        ask = ["curl", "--silent", "--fail", "--max-time", "10", "--cacert", server / "ca.pem"]
        waited(f"up: {up.said()}", lambda: run(*within, *ask, "https://api.localhost:8443/readyz")[0] == 0, up.process)
        status = status_of(inside)
        self.assertEqual(status["Uid"].split(), [str(USER)] * 4)
        self.assertEqual({status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")}, {"0" * 16})
        self.assertEqual(status["NoNewPrivs"], "1")
        mounts = pathlib.Path(f"/proc/{inside}/mountinfo").read_text().splitlines()
        self.assertIn("ro", next(line for line in mounts if line.split()[4] == "/").split()[5].split(","))

        shutil.copy(server / "ca.pem", client / "ca.pem")
        os.chown(client / "ca.pem", USER, USER)
        known = ["SALLYPORT_API=https://api.localhost:8443", "SALLYPORT_CA=/var/lib/sallyport/ca.pem", "SALLYPORT_PASSWORD=correct horse battery"]
        with_client = {"data": client, "network": inside, "environment": known}
        for command in (["account", "create", "--name", "Ann", "--email", "ann@example.com"], ["login", "--email", "ann@example.com"]):
            code, said = bundle.run(command, **with_client)
            self.assertEqual(code, 0, said)
        (self.folder / "web").mkdir()
        (self.folder / "web/index.html").write_text("hello from a container")
        origin = subprocess.Popen([*within, sys.executable, "-m", "http.server", "8000", "--bind", "127.0.0.1", "--directory", self.folder / "web"],
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(origin.wait)
        self.addCleanup(origin.kill)
        connector = bundle.container(["connect", "8000", "--name", "it"], **with_client)
        self.addCleanup(connector.end)
        url = waited("connect", lambda: re.search(r"https://[a-z0-9-]+\.localhost:8443", connector.said()), connector.process)[0]
        waited(f"{url}: {connector.said()}", lambda: run(*within, *ask, f"{url}/")[1] == "hello from a container", connector.process, up.process)
        self.assertEqual(status_of(connector.pid())["CapBnd"], "0" * 16)
        # Nothing is written outside of the volume.
        written = [path for path in (self.folder / "sallyport/bundle/rootfs").rglob("*") if path.stat(follow_symlinks=False).st_uid == USER]
        self.assertEqual([path.name for path in written], ["sallyport"])


if __name__ == "__main__":
    image_rig.PATIENCE_S = int(os.environ.get("SALLYPORT_PATIENCE_S", image_rig.PATIENCE_S))
    unittest.main()
