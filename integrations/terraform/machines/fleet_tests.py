"""Fleets that Terraform makes: its examples, with real machines in the place of a cloud's."""

import collections
import pathlib
import subprocess
import time
import unittest

import load
import rig
import terraform

# What a cloud's resource would do: a machine from user data, and its end. Nothing of the user data is in the state,
# since ephemeral values go into a provisioner.
MACHINES = """
resource "terraform_data" "machine" {
  for_each = %(machines)s
  input    = each.value

  provisioner "local-exec" {
    command     = <<-END
      printf %%s "$USER_DATA" | "$MACHINE" start ${each.key} --bridge ${each.value.site} \\
        --address ${each.value.address} --hosts "$HOSTS" --user-data - --wait done
    END
    environment = { USER_DATA = %(user_data)s }
  }

  provisioner "local-exec" {
    when    = destroy
    command = "\\"$MACHINE\\" stop ${self.input.name}"
  }

  depends_on = [%(needs)s]
}

locals {
  sites = { hub = 0, eu = 1, us = 2, ap = 3, sa = 4 }
}
"""

BY_REGION = """merge([for region, part in %(module)s : {
    for index, name in part.names : name => {
      name = name, region = region, site = region, address = "10.81.${local.sites[region]}.${index + 2}/24"
    }
  }]...)"""


class Fleet(unittest.TestCase):
    """What both fleets need."""

    @classmethod
    def setUpClass(cls):
        # The provider is built with the network of this computer.
        cls.plugins = terraform.Plugins()
        cls.addClassCleanup(cls.plugins.close)

    def secrets_of(self, here):
        """Texts that no state may have: the beginnings of all tokens and credentials of the product, and keys."""
        return ["spe_", "sps_", "spt_", "spk_", "spc_", "PRIVATE KEY"]

    def no_secrets(self, workspace):
        """Greps the state and what terraform shows of it."""
        for text in (workspace.state(), workspace.run("show", "-json")):
            for secret in [*self.secrets_of(workspace.here), workspace.env["SALLYPORT_TOKEN"]]:
                self.assertNotIn(secret, text)

    def nothing_left(self, here):
        """No machine, no namespace of one, no mount."""
        self.assertEqual(here.machine("list"), "")
        self.assertFalse((here.folder / "machines").exists())
        self.assertNotIn(f"{here.folder}/machines", pathlib.Path("/proc/mounts").read_text())


class GifService(Fleet):
    """Two machines in each of two regions serve one socket; growing and shrinking loses no request."""

    def test_two_machines_in_each_of_two_regions(self):
        here = rig.Installation(sites=("hub", "eu", "us"), edges=False)
        self.addCleanup(here.close)
        workspace = terraform.Workspace(here, self.plugins, "gif-service")
        workspace.env["HOSTS"] = str(here.hosts_file)
        workspace.write("machines.tf", MACHINES % {
            "machines": BY_REGION % {"module": "module.origins"},
            "user_data": "module.origins[each.value.region].user_data[each.key]", "needs": "module.origins"})
        common = {"program": {"url": here.url, "sha256": here.sha256}, "api": here.api, "ca": here.ca.read_text()}
        began = time.monotonic()
        workspace.apply(instances=1, **common)
        host = workspace.outputs()["host"]
        names = lambda count: sorted(f"gif-{region}-{n + 1}" for region in ("eu", "us") for n in range(count))  # noqa: E731
        self.evenly(here, host, names(1))
        print(f"gif service: two machines serve {time.monotonic() - began:.1f} s after the apply began")
        self.assertTrue(workspace.plan_is_empty(instances=1, **common))

        clients = load.Load(here, host, rig.HUB)
        self.addCleanup(clients.stop)
        began = time.monotonic()
        workspace.apply(instances=2, **common)
        print(f"gif service: two machines more in {time.monotonic() - began:.1f} s")
        self.even_under_load(clients, names(2))
        workspace.apply(instances=1, **common)
        moment = time.monotonic()
        rig.wait_until("requests after shrinking", lambda: len(clients.since(moment)) >= 20)
        self.assertEqual(sorted(set(clients.since(moment))), names(1))
        answered, failures = clients.stop()
        self.assertEqual(failures, [], f"of {answered + len(failures)} requests")
        print(f"gif service: 2 -> 4 -> 2 machines under load, {answered} requests, none failed")

        workspace.apply(instances=2, **common)
        self.assertEqual(self.evenly(here, host, names(2)), {name: 5 for name in names(2)})
        print("gif service: 20 requests, 5/5/5/5")
        self.no_secrets(workspace)
        workspace.run("destroy", "-auto-approve", *self.variables(common))
        self.nothing_left(here)
        self.assertEqual(here.json("socket", "ls"), [])

    @staticmethod
    def variables(values):
        """The options of terraform for these variables."""
        return [word for name, value in values.items()
                for word in ("-var", f"{name}={value if isinstance(value, str) else terraform.json.dumps(value)}")]

    def evenly(self, here, host, names):
        """Twenty requests, once all machines answer: how many each has answered."""
        rig.wait_until("all machines answer",
                       lambda: {here.get(host)[1].strip() for _ in range(2 * len(names))} == set(names))
        return collections.Counter(here.get(host)[1].strip() for _ in range(20))

    def even_under_load(self, clients, names):
        """Waits for 40 requests in a row with even shares, and prints how long that took after all had joined."""
        rig.wait_until("all machines answer", lambda: set(clients.since(0)) == set(names))
        joined = time.monotonic()

        def even():
            last = collections.Counter(clients.since(joined)[-40:])
            return sum(last.values()) == 40 and all(8 <= last[name] <= 12 for name in names) and last

        shares = rig.wait_until("even shares", even)
        print(f"gif service: even shares {time.monotonic() - joined:.1f} s after joining: {dict(shares)}")


class AnycastFleet(Fleet):
    """Eight edges on four sites announce one prefix."""

    def test_eight_edges_on_four_sites_by_one_apply(self):
        if rig.shutil.which("bird", path=rig.os.environ["PATH"] + ":/usr/sbin") is None:
            self.skipTest("bird is missing (Debian's package bird2)")
        here = rig.Installation(sites=("hub", "eu", "us", "ap", "sa"), more=("--anycast-allow", "198.51.100.0/24"))
        self.addCleanup(here.close)
        sites = ("eu", "us", "ap", "sa")
        self.router(here, sites, 2)
        workspace = terraform.Workspace(here, self.plugins, "anycast-fleet")
        workspace.env["HOSTS"] = str(here.hosts_file)
        workspace.write("machines.tf", MACHINES % {
            "machines": BY_REGION % {"module": "module.fleet.sites"},
            "user_data": "module.fleet.user_data[each.key]", "needs": "module.fleet"})
        common = {"program": {"url": here.url, "sha256": here.sha256}, "prefix": "198.51.100.0/24",
                  "sites": {site: {"router": f"10.81.{rig.SITES[site]}.1", "router_as": 64500} for site in sites}}
        began = time.monotonic()
        workspace.apply(instances=2, **common)
        rig.wait_until("eight edges are up", lambda: [edge["state"] for edge in here.edges().values()] == ["up"] * 8)
        print(f"anycast fleet: eight edges on four sites {time.monotonic() - began:.1f} s after the apply began")
        self.assertTrue(workspace.plan_is_empty(instances=2, **common))
        wanted = {f"10.81.{rig.SITES[site]}.{number}" for site in sites for number in (2, 3)}
        rig.wait_until("routes by all eight", lambda: self.routes(here) == wanted)
        print(f"anycast fleet: a router has eight routes {time.monotonic() - began:.1f} s after the apply began")
        self.no_secrets(workspace)

        workspace.apply(instances=1, **common)
        wanted = {f"10.81.{rig.SITES[site]}.2" for site in sites}
        rig.wait_until("routes by four", lambda: self.routes(here) == wanted)
        self.assertEqual(sorted(here.edges()), [f"{site}-1" for site in sorted(sites)])
        workspace.run("destroy", "-auto-approve", "-var", f"instances=1", *GifService.variables(common))
        self.nothing_left(here)
        self.assertEqual(here.edges(), {})
        self.assertEqual(here.json("anycast", "prefix", "ls"), [])

    @staticmethod
    def router(here, sites, instances):
        """One BIRD that is the router of each site."""
        text = "router id 10.81.0.1;\nprotocol device {}\n"
        for site in sites:
            for number in range(2, 2 + instances):
                local = f"10.81.{rig.SITES[site]}"
                text += (f"protocol bgp {site}{number} {{ local {local}.1 as 64500; neighbor {local}.{number} as 64501; "
                         "ttl security on; ipv4 { import all; export none; }; }\n")
        config = here.folder / "router.conf"
        config.write_text(text)
        here.spawn_program("router", "bird", "-f", "-c", config, "-s", here.folder / "router.ctl")

    @staticmethod
    def routes(here):
        """The next hops of the prefix."""
        done = subprocess.run(["birdc", "-r", "-s", here.folder / "router.ctl", "show", "route", "198.51.100.0/24"],
                              stdout=subprocess.PIPE, text=True, env=here.env)
        return {word for line in done.stdout.splitlines() if "via" in line for word in line.split() if word.startswith("10.81.")}
