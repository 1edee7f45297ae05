"""Fresh machines become edges by the files of integrations/cloud-init, with the real cloud-init and systemd."""

import pathlib
import re
import textwrap
import time
import unittest

import rig

FILES = rig.ROOT / "integrations/cloud-init"


def edited(name, settings):
    """The user data with the values of these settings: what EDIT lines ask for."""
    text = (FILES / name).read_text()
    for key, value in settings.items():
        text, count = re.subn(f"(?m)^( *){key}=.*$", rf"\g<1>{key}={value}", text)
        assert count == 1, f"{name} has {count} lines for {key}"
    return text


class Files(unittest.TestCase):
    """The files themselves."""

    def test_cloud_init_finds_them_valid(self):
        root = pathlib.Path(rig.machine("root"))
        files = [*FILES.glob("*.yaml"), *rig.ROOT.glob("integrations/terraform/examples/*/*.yaml")]
        self.assertGreaterEqual(len(files), 4)
        # Seen by this process alone; the root of the machines stays as it is.
        rig.libc("mount", str(rig.ROOT).encode(), str(root / "mnt").encode(), None, rig.MS_BIND, None)
        self.addCleanup(rig.subprocess.run, ["umount", root / "mnt"], check=True)
        for file in files:
            done = rig.subprocess.run(["chroot", root, "cloud-init", "schema", "--config-file",
                                       f"/mnt/{file.relative_to(rig.ROOT)}"], stdout=rig.subprocess.PIPE,
                                      stderr=rig.subprocess.STDOUT, text=True)
            self.assertIn("Valid cloud-config", done.stdout, file.name)

    def test_an_origin_has_the_unit_of_systemd(self):
        unit = (rig.ROOT / "integrations/systemd/sallyport-run.service").read_text()
        unit = unit[unit.index("[Unit]"):].rstrip("\n")
        indented = "\n".join("      " + line if line else "" for line in unit.split("\n"))
        self.assertIn("\n    content: |\n" + indented + "\n\n", (FILES / "origin.yaml").read_text())


class UserData(unittest.TestCase):
    """edge.yaml and anycast-edge.yaml, as they are."""

    @classmethod
    def setUpClass(cls):
        cls.here = rig.Installation(sites=("hub", "eu"), more=("--anycast-allow", "198.51.100.0/24"))
        cls.addClassCleanup(cls.here.close)

    def settings(self, name, number, **more):
        """The values for the machine 10.81.1.NUMBER."""
        token = self.here.json("edge", "token", "create", "--name", name, "--region", "eu")["token"]
        return {"SALLYPORT_JOIN": token, "SALLYPORT_REGION": "eu", "SALLYPORT_ADVERTISE": f"10.81.1.{number}:443",
                "SALLYPORT_URL": self.here.url, "SALLYPORT_SHA256": self.here.sha256} | more

    def test_a_fresh_machine_becomes_an_edge(self):
        began = time.monotonic()
        data = edited("edge.yaml", self.settings("eu-1", 2))
        self.here.boot("eu-1", "eu", 2, data)
        rig.wait_until("the edge is up", lambda: self.here.edges().get("eu-1", {}).get("state") == "up")
        print(f"edge.yaml: an edge serves {time.monotonic() - began:.1f} s after the machine was asked for")
        self.assertEqual(self.here.edges()["eu-1"]["region"], "eu")
        self.assertEqual(self.here.get(f"api.{rig.DOMAIN}", "/v1/info", edge="10.81.1.2")[0], 200)
        inside = lambda *words: self.here.machine("run", "eu-1", *words)  # noqa: E731
        self.assertNotIn("SALLYPORT_JOIN", inside("cat", "/etc/sallyport/edge.env"))
        self.assertEqual(inside("systemctl", "is-system-running"), "running")
        self.assertIn("Valid cloud-config", inside("cloud-init", "schema", "--system"))
        # A second start of the script changes nothing, and the edge comes back with the machine.
        inside("/usr/local/sbin/sallyport-install")
        self.assertEqual(inside("systemctl", "is-enabled", "sallyport-edge.service"), "enabled")
        self.here.machine("stop", "eu-1")
        rig.wait_until("the edge is away", lambda: self.here.edges()["eu-1"]["state"] != "up")

    def test_another_program_than_was_meant_is_not_installed(self):
        data = edited("edge.yaml", self.settings("eu-2", 3, SALLYPORT_SHA256="0" * 64))
        with self.assertRaisesRegex(AssertionError, "is not the file with the SHA-256 0000"):
            self.here.boot("eu-2", "eu", 3, data)
        self.assertNotIn("eu-2", self.here.edges())

    def test_user_data_comes_from_a_secret_store_as_the_page_says(self):
        page = (rig.ROOT / "docs/fleets.md").read_text()
        script = textwrap.dedent(re.search(r"(?s)user_data +=\s<<-END\n(.*?)\n +END\n", page)[1])
        script, count = re.subn(r"(?s)aws ssm get-parameter.*?--output text", f"curl -fsS http://{rig.HUB}:8080/secret", script)
        self.assertEqual(count, 1)
        (self.here.folder / "downloads/secret").write_text(edited("edge.yaml", self.settings("eu-5", 5)))
        self.here.boot("eu-5", "eu", 5, script)
        rig.wait_until("the edge is up", lambda: self.here.edges().get("eu-5", {}).get("state") == "up")

    def test_a_fresh_machine_announces_by_bgp(self):
        if rig.shutil.which("bird", path=self.here.env["PATH"]) is None:
            self.skipTest("bird is missing (Debian's package bird2)")
        folder = self.here.folder
        config = folder / "router.conf"
        config.write_text("router id 10.81.1.1;\nprotocol device {}\nprotocol bgp edge { local 10.81.1.1 as 64500; "
                          "neighbor 10.81.1.4 as 64501; ttl security on; ipv4 { import all; export none; }; }\n")
        self.here.spawn_program("router", "bird", "-f", "-c", config, "-s", folder / "router.ctl")
        self.here.run("anycast", "prefix", "add", "198.51.100.0/24")
        self.here.run("anycast", "peer", "add", "router", "--at", "edge:eu-4", "--address", "10.81.1.1", "--as", "64500",
                      "--local-as", "64501")
        data = edited("anycast-edge.yaml", self.settings("eu-4", 4, SALLYPORT_ANYCAST_ALLOW="198.51.100.0/24"))
        began = time.monotonic()
        self.here.boot("eu-4", "eu", 4, data)

        def route():
            done = rig.subprocess.run(["birdc", "-r", "-s", folder / "router.ctl", "show", "route", "198.51.100.0/24"],
                                      stdout=rig.subprocess.PIPE, text=True, env=self.here.env)
            return "via 10.81.1.4" in done.stdout and done.stdout

        found = rig.wait_until("the router has the route", route)
        print(f"anycast-edge.yaml: a router has the route {time.monotonic() - began:.1f} s after the machine was asked for")
        self.assertIn("[AS64501i]", found)
        self.here.machine("stop", "eu-4")
        rig.wait_until("the route is gone with the machine", lambda: not route())
