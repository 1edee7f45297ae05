package provider_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

const edgeArgument = `token = %s
    region    = "eu"
    advertise = null
    program   = { url = "https://downloads.example.com/sallyport", sha256 = "%064d" }
    files     = [{ path = "/srv/it", content = "\"$${x}\"\n$(reboot)", permissions = null }, { path = "/srv/more", content = "" }]
    commands  = ["true", ["echo", "two words"]]`

// TestFunctions has the real terraform call the functions, with ephemeral values among others.
func TestFunctions(t *testing.T) {
	_, w := one(t, `
output "services" {
  value = provider::sallyport::services_toml({ mptcp = true, services = [{ port = 8000 }, { name = "b", address = "https://127.0.0.1:1", strip_path = true }] })
}
output "edge" {
  value = provider::sallyport::cloud_init_edge({
    `+fmt.Sprintf(edgeArgument, `"spe_x"`, 0)+`
  })
}
`)
	w.Apply(t)
	w.NoChanges(t)
	var outputs map[string]struct{ Value string }
	if err := json.Unmarshal([]byte(w.Must(t, "output", "-json")), &outputs); err != nil {
		t.Fatal(err)
	}
	if want := "mptcp = true\n\n[[service]]\nport = 8000\n\n[[service]]\naddress = \"https://127.0.0.1:1\"\nname = \"b\"\nstrip-path = true\n"; strings.TrimSpace(outputs["services"].Value) != strings.TrimSpace(want) {
		t.Errorf("the services are %q", outputs["services"].Value)
	}
	for _, words := range []string{"#cloud-config\n", "SALLYPORT_JOIN=spe_x", "\"${x}\"\n      $(reboot)"} {
		if !strings.Contains(outputs["edge"].Value, words) {
			t.Errorf("%q is missing in:\n%s", words, outputs["edge"].Value)
		}
	}
}

// TestFunctionsKeepEphemeralValues uses an ephemeral token, and looks for it in plan and state.
func TestFunctionsKeepEphemeralValues(t *testing.T) {
	const secret = "spe_secret-of-this-test"
	text := `
variable "token" {
  type      = string
  ephemeral = true
}
locals {
  user_data = provider::sallyport::cloud_init_edge({
    ` + fmt.Sprintf(edgeArgument, "var.token", 0) + `
  })
}
resource "terraform_data" "machine" {
  provisioner "local-exec" {
    command     = "printf %s \"$USER_DATA\" >user-data"
    environment = { USER_DATA = local.user_data }
  }
}
`
	_, w := one(t, text)
	w.Set("TF_VAR_token", secret)
	plan := w.Plan(t)
	w.Must(t, "apply", "-no-color", "it.plan")
	w.NoChanges(t)
	if !strings.Contains(w.Read(t, "user-data"), "SALLYPORT_JOIN="+secret) {
		t.Error("the machine does not get the token")
	}
	if strings.Contains(plan.JSON+w.Read(t, "terraform.tfstate"), secret) {
		t.Error("plan or state has the token")
	}
	// The result of ephemeral values is ephemeral: no output that is kept can have it.
	w.Write(t, "main.tf", text+"output \"user_data\" {\n  value = local.user_data\n}\n")
	w.Fails(t, []string{"phemeral value", `in output "user_data"`}, "plan") // in the words of Terraform, or of OpenTofu
}

// TestFunctionsRefuse has wrong arguments refused in one sentence.
func TestFunctionsRefuse(t *testing.T) {
	_, w := one(t, "")
	for words, call := range map[string]string{
		`There is no field "tokn": is "token" meant?`: `cloud_init_edge({ tokn = "spe_x" })`,
		"The argument is no object":                   `cloud_init_origin("https://api.example.com")`,
		"`services` is no list: write [ … ]":          `services_toml({ services = "x" })`,
		"argument must not be null":                   `services_toml(null)`,
	} {
		w.Write(t, "main.tf", "output \"it\" {\n  value = provider::sallyport::"+call+"\n}\n")
		w.Fails(t, []string{words}, "plan")
	}
}
