"""Terraform in tests: the real one, with the provider of this folder and no registry."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile

import rig

SOURCE = rig.ROOT / "integrations/terraform"
BUILD_SECONDS = 900
# What the owner of an installation needs for its edges: all scopes.
SCOPES = "account:write,sockets:write,identity:write,audit:read,organisation:write"


def build(folder):
    """Builds the provider into the folder, or takes the one of TERRAFORM_PROVIDER."""
    target = folder / "terraform-provider-sallyport"
    if os.environ.get("TERRAFORM_PROVIDER"):
        shutil.copy(os.environ["TERRAFORM_PROVIDER"], target)
        return
    path = os.environ["PATH"] + ":/usr/local/go/bin"
    go = shutil.which("go", path=path)
    if go is None:
        raise rig.Absent("go is missing (Debian's package golang-go)")
    # As integrations/terraform/test has it: what Go keeps is beside the other tools.
    cache = rig.tools_folder()
    settings = {"PATH": path, "GOPATH": f"{cache}/go", "GOMODCACHE": f"{cache}/go/pkg/mod",
                "GOCACHE": os.environ.get("GOCACHE", f"{cache}/go-build"), "GOFLAGS": "-modcacherw -buildvcs=false"}
    done = subprocess.run([go, "build", "-o", target, "."], cwd=SOURCE, env=os.environ | settings,
                          stderr=subprocess.PIPE, text=True, timeout=BUILD_SECONDS)
    if done.returncode:
        raise AssertionError(f"the provider cannot be built: {done.stderr}")


def copy(example, folder):
    """Copies an example, which uses the modules where they are."""
    shutil.copytree(example, folder)
    # A relative path: Terraform would copy a module with an absolute one.
    modules = os.path.relpath(SOURCE / "modules", folder)
    for file in folder.glob("*.tf"):
        file.write_text(file.read_text().replace('"../../modules/', f'"{modules}/'))


class Plugins:
    """A folder with the provider, built before a test leaves this computer's network."""

    def __init__(self):
        if shutil.which("terraform") is None:
            raise rig.Absent("terraform is missing")
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="sallyport-plugins-"))
        build(self.folder)
        self.rc = self.folder / "terraform.rc"
        self.rc.write_text(f'provider_installation {{\n  dev_overrides {{\n    "sallyport.dev/sallyport/sallyport" = "{self.folder}"\n'
                           "  }\n  direct {}\n}\n")
        self.env = {"TF_CLI_CONFIG_FILE": str(self.rc), "TF_IN_AUTOMATION": "1", "TF_INPUT": "0", "CHECKPOINT_DISABLE": "1"}

    def run(self, folder, *arguments):
        """Runs terraform in a folder that stays as it is, and returns what it prints."""
        data = self.folder / folder.name
        done = subprocess.run(["terraform", f"-chdir={folder}", *arguments], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=rig.COMMAND_SECONDS,
                              env=os.environ | self.env | {"TF_DATA_DIR": str(data)})
        if done.returncode:
            raise AssertionError(f"{folder}: {' '.join(arguments)}: {done.stdout}")
        return done.stdout

    def close(self):
        """Removes the folder."""
        shutil.rmtree(self.folder, ignore_errors=True)


class Workspace:
    """A folder with Terraform files and their state."""

    def __init__(self, here, plugins, example):
        """A copy of an example, which uses the modules where they are. A file of the test's own makes the machines."""
        self.here = here
        self.folder = here.folder / "terraform" / example
        copy(SOURCE / "examples" / example, self.folder)
        token = here.json("token", "create", "--name", f"terraform {example}", "--scope", SCOPES)["token"]
        self.env = here.env | plugins.env | {"SALLYPORT_TOKEN": token}
        self.run("get")

    def write(self, name, text):
        """Writes a file of the workspace."""
        (self.folder / name).write_text(text)

    def run(self, *arguments, variables=None):
        """Runs terraform, and returns what it prints."""
        words = ["terraform", *arguments]
        for name, value in (variables or {}).items():
            words += ["-var", f"{name}={value if isinstance(value, str) else json.dumps(value)}"]
        done = subprocess.run(words, cwd=self.folder, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, timeout=rig.COMMAND_SECONDS)
        if done.returncode:
            raise AssertionError(f"{' '.join(words)}: {done.stdout}")
        return done.stdout

    def apply(self, **variables):
        """Applies, and returns what terraform prints."""
        return self.run("apply", "-auto-approve", "-no-color", variables=variables)

    def plan_is_empty(self, **variables):
        """Whether a plan has nothing to do."""
        return "No changes." in self.run("plan", "-no-color", variables=variables)

    def state(self):
        """The text of the state and its backup."""
        return "".join(path.read_text() for path in self.folder.glob("terraform.tfstate*"))

    def outputs(self):
        """The outputs, by name."""
        return {name: output["value"] for name, output in json.loads(self.run("output", "-json")).items()}
