"""Fleets that Terraform makes: its examples, with real machines in the place of a cloud's."""

import collections
import http.server
import pathlib
import random
import re
import subprocess
import tempfile
import threading
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

  triggers_replace = %(made)s

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


# All tokens and credentials of the product, and keys.
SECRET = r"sp[a-z]_[A-Za-z0-9_-]{20}|PRIVATE KEY"

# Resources with all that they take, besides those of the fleet.
FULL = """
variable "password" {
  type      = string
  ephemeral = true
}

resource "sallyport_edge" "spare" {
  name          = "spare"
  token_minutes = 10
}

resource "sallyport_anycast_prefix" "full" {
  prefix      = "198.51.101.0/24"
  addresses   = ["198.51.101.7", "198.51.101.8"]
  regions     = ["nowhere"]
  communities = ["64500:1", "64500:1:2"]
  min_sites   = 2
}

resource "sallyport_anycast_peer" "full" {
  name                = "full"
  place               = "region:nowhere"
  address             = "192.0.2.1"
  remote_as           = 64502
  local_as            = 64501
  role                = "none"
  max_prefixes        = 10
  prepend             = 1
  communities         = ["64500:3"]
  drain_communities   = ["64500:4"]
  no_export           = true
  bfd                 = { interval_ms = 200 }
  password_wo         = var.password
  password_wo_version = 1
}
"""


class Fleet(unittest.TestCase):
    """What both fleets need."""

    @classmethod
    def setUpClass(cls):
        # The provider is built with the network of this computer.
        cls.plugins = terraform.Plugins()
        cls.addClassCleanup(cls.plugins.close)


    def no_secrets(self, workspace):
        """Greps the state and what terraform shows of it."""
        self.assertRegex(workspace.env["SALLYPORT_TOKEN"], SECRET)
        for text in (workspace.state(), workspace.run("show", "-json")):
            self.assertNotRegex(text, SECRET)

    def nothing_left(self, here):
        """No machine, no namespace of one, no mount."""
        self.assertEqual(here.machine("list"), "")
        self.assertFalse((here.folder / "machines").exists())
        self.assertNotIn(f"{here.folder}/machines", pathlib.Path("/proc/mounts").read_text())


class Examples(Fleet):
    """What users copy."""

    def test_examples_are_valid(self):
        examples = sorted(path.parent for path in (terraform.SOURCE / "examples").glob("*/main.tf"))
        self.assertEqual([path.name for path in examples], ["anycast-fleet", "gif-service", "region"])
        work = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        for example in examples:
            # With what the page beside it says for a cloud.
            folder = work / example.name
            terraform.copy(example, folder)
            page = (example / "README.md").read_text()
            (folder / "machines.tf").write_text(re.search(r"(?s)```hcl\n(.*?)```", page)[1])
            self.plugins.run(folder, "get")
            self.assertIn("The configuration is valid", self.plugins.run(folder, "validate", "-no-color"))
            self.plugins.run(folder, "fmt", "-check", "-diff", "machines.tf")
        self.plugins.run(terraform.SOURCE / "modules", "fmt", "-check", "-recursive")


class GifService(Fleet):
    """Two machines in each of two regions serve one socket; growing and shrinking loses no request."""

    def test_two_machines_in_each_of_two_regions(self):
        here = rig.Installation(sites=("hub", "eu", "us"), edges=False)
        self.addCleanup(here.close)
        workspace = terraform.Workspace(here, self.plugins, "gif-service")
        workspace.env["HOSTS"] = str(here.hosts_file)
        # Requests that take a while, so that some are always open when a machine goes.
        service = (workspace.folder / "service.yaml").read_text()
        answer = "          def do_GET(self):\n"
        self.assertEqual(service.count(answer), 1)
        slow = "          def do_POST(self):\n              __import__('time').sleep(0.1)\n              self.do_GET()\n\n"
        workspace.write("service.yaml", service.replace(answer, slow + answer))
        workspace.write("machines.tf", MACHINES % {
            "machines": BY_REGION % {"module": "module.origins"},
            "user_data": "module.origins[each.value.region].user_data[each.key]",
            "made": "module.origins[each.value.region].made[each.key]", "needs": "module.origins"})
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
        grown = self.none_failed(clients)
        self.assertEqual(self.evenly(here, host, names(2)), {name: 5 for name in names(2)})
        print("gif service: 20 requests, 5/5/5/5")

        clients = load.Load(here, host, rig.HUB)
        self.addCleanup(clients.stop)
        workspace.apply(instances=1, **common)
        moment = time.monotonic()
        rig.wait_until("requests after shrinking", lambda: len(clients.since(moment)) >= 20)
        self.assertEqual(sorted(set(clients.since(moment))), names(1))
        shrunk = self.none_failed(clients)
        print(f"gif service: 2 -> 4 -> 2 machines under load, {grown} and {shrunk} requests, none failed")
        self.no_secrets(workspace)
        workspace.run("destroy", "-auto-approve", *self.variables(common))
        self.nothing_left(here)
        self.assertEqual(here.json("socket", "ls"), [])

    def none_failed(self, clients):
        """Ends a load, and returns the number of its requests."""
        answered, failures = clients.stop()
        self.assertEqual(failures, [], f"of {answered + len(failures)} requests")
        return answered

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

    def fleet(self, here, sites):
        """The workspace of a fleet on these sites, whose machines it makes, and the variables of each apply."""
        self.router(here, sites, 2)
        workspace = terraform.Workspace(here, self.plugins, "anycast-fleet")
        workspace.env["HOSTS"] = str(here.hosts_file)
        workspace.write("machines.tf", MACHINES % {
            "machines": BY_REGION % {"module": "module.fleet.sites"},
            "user_data": "module.fleet.user_data[each.key]", "made": "module.fleet.made[each.key]", "needs": "module.fleet"})
        common = {"program": {"url": here.url, "sha256": here.sha256}, "prefix": "198.51.100.0/24",
                  "sites": {site: {"router": f"10.81.{rig.SITES[site]}.1", "router_as": 64500} for site in sites}}
        return workspace, common

    def test_eight_edges_on_four_sites_by_one_apply(self):
        if rig.shutil.which("bird", path=rig.os.environ["PATH"] + ":/usr/sbin") is None:
            self.skipTest("bird is missing (Debian's package bird2)")
        here = rig.Installation(sites=("hub", "eu", "us", "ap", "sa"), more=("--anycast-allow", "198.51.100.0/23"))
        self.addCleanup(here.close)
        sites = ("eu", "us", "ap", "sa")
        workspace, common = self.fleet(here, sites)
        began = time.monotonic()
        workspace.apply(instances=2, **common)
        rig.wait_until("eight edges are up", lambda: [edge["state"] for edge in here.edges().values()] == ["up"] * 8)
        print(f"anycast fleet: eight edges on four sites {time.monotonic() - began:.1f} s after the apply began")
        self.assertTrue(workspace.plan_is_empty(instances=2, **common))
        wanted = {f"10.81.{rig.SITES[site]}.{number}" for site in sites for number in (2, 3)}
        rig.wait_until("routes by all eight", lambda: self.routes(here) == wanted)
        print(f"anycast fleet: a router has eight routes {time.monotonic() - began:.1f} s after the apply began")
        self.no_secrets(workspace)
        # cloud-init's own judgement of the user data that the module has made.
        self.assertIn("Valid cloud-config", here.machine("run", "eu-1", "cloud-init", "schema", "--system"))
        self.come_and_go(here, workspace, common)

        workspace.apply(instances=1, **common)
        wanted = {f"10.81.{rig.SITES[site]}.2" for site in sites}
        rig.wait_until("routes by four", lambda: self.routes(here) == wanted)
        self.assertEqual(sorted(here.edges()), [f"{site}-1" for site in sorted(sites)])
        workspace.run("destroy", "-auto-approve", "-var", "instances=1", *GifService.variables(common))
        self.nothing_left(here)
        self.assertEqual(here.edges(), {})
        self.assertEqual(here.json("anycast", "prefix", "ls"), [])

    def test_two_edges_become_four_and_two_again_under_load(self):
        if rig.shutil.which("bird", path=rig.os.environ["PATH"] + ":/usr/sbin") is None:
            self.skipTest("bird is missing (Debian's package bird2)")
        here = rig.Installation(sites=("hub", "eu", "us"), more=("--anycast-allow", "198.51.100.0/24"))
        self.addCleanup(here.close)
        sites = ("eu", "us")
        workspace, common = self.fleet(here, sites)
        of = lambda count: {f"10.81.{rig.SITES[site]}.{2 + number}" for site in sites for number in range(count)}  # noqa: E731
        workspace.apply(instances=1, **common)
        rig.wait_until("routes by two", lambda: self.routes(here) == of(1))
        clients = self.clients(here)
        rig.wait_until("requests by two", lambda: clients.edges_since(0) == of(1))

        began = time.monotonic()
        workspace.apply(instances=2, **common)
        rig.wait_until("routes by four", lambda: self.routes(here) == of(2))
        moment = time.monotonic()
        rig.wait_until("requests by four", lambda: clients.edges_since(moment) == of(2))
        print(f"anycast fleet: two edges more serve {time.monotonic() - began:.1f} s after the apply began")
        workspace.apply(instances=1, **common)
        rig.wait_until("routes by two again", lambda: self.routes(here) == of(1))
        moment = time.monotonic()
        rig.wait_until("requests by two again", lambda: clients.edges_since(moment) == of(1))
        answered, failures = clients.stop()
        self.assertEqual(failures, [], f"of {answered + len(failures)} requests")
        print(f"anycast fleet: 2 -> 4 -> 2 edges under load, {answered} requests, none failed")

    def clients(self, here):
        """A service, and clients whose router takes one of its next hops for each connection."""
        service = http.server.ThreadingHTTPServer((rig.HUB, 8000), load.Service)
        self.addCleanup(service.server_close)
        self.addCleanup(service.shutdown)
        threading.Thread(target=service.serve_forever, daemon=True).start()
        here.spawn("connector", "connect", f"{rig.HUB}:8000", "--name", "load")
        rig.wait_until("the socket", lambda: here.json("socket", "ls"))
        (host,) = [item["dns_name"] for item in here.json("socket", "ls")]

        def hop():
            return random.choice(sorted(self.routes(here)))

        def answers():
            try:
                return here.get(host, edge=hop())[0] == 200
            except OSError:
                return False

        rig.wait_until("the service answers", answers)
        clients = load.Load(here, host, hop, pause=0.1)
        self.addCleanup(clients.stop)
        return clients

    def come_and_go(self, here, workspace, common):
        """Imports, what was deleted elsewhere, and resources with all that they take."""
        edge, peer, prefix = ('module.fleet.module.edges["eu"].sallyport_edge.this["eu-1"]',
                              'module.fleet.sallyport_anycast_peer.this["eu"]',
                              'module.fleet.sallyport_anycast_prefix.this["198.51.100.0/24"]')
        peers = {item["name"]: item["id"] for item in here.json("anycast", "peer", "ls")}
        prefixes = {item["prefix"]: item["id"] for item in here.json("anycast", "prefix", "ls")}
        ids = {edge: "eu-1", peer: peers["router-eu"], prefix: prefixes["198.51.100.0/24"]}
        workspace.run("state", "rm", *ids)
        workspace.write("imports.tf", "".join(f"import {{\n  to = {address}\n  id = {terraform.json.dumps(of)}\n}}\n"
                                              for address, of in ids.items()))
        self.assertIn("3 imported, 0 added, 0 changed, 0 destroyed", workspace.apply(instances=2, **common))
        (workspace.folder / "imports.tf").unlink()
        workspace.write("full.tf", FULL)
        workspace.env["TF_VAR_password"] = "password-of-a-session"
        self.assertIn("3 added, 0 changed, 0 destroyed", workspace.apply(instances=2, **common))
        self.assertTrue(workspace.plan_is_empty(instances=2, **common))
        self.assertNotIn("password-of-a-session", workspace.state())
        here.run("anycast", "peer", "rm", "full")
        here.run("anycast", "prefix", "rm", "198.51.101.0/24")
        here.run("edge", "token", "rm", next(token["id"] for token in here.json("edge", "token", "ls")
                                             if token["name"] == "spare"))
        self.assertIn("3 added, 0 changed, 0 destroyed", workspace.apply(instances=2, **common))
        (workspace.folder / "full.tf").unlink()

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
