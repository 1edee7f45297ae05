package provider_test

import (
	"strings"
	"testing"
)

func TestFunctions(t *testing.T) {
	_, w := one(t, `
ephemeral "sallyport_access_token" "run" { scopes = ["sockets:read"] }
locals {
  program = { url = "https://downloads.example.com/sallyport", sha256 = "`+strings.Repeat("0f", 32)+`" }
}
resource "terraform_data" "it" {
  provisioner "local-exec" {
    command     = "printf %s \"$DATA\" > user-data"
    environment = {
      DATA = provider::sallyport::cloud_init_origin({
        api      = "https://api.example.com"
        token    = ephemeral.sallyport_access_token.run.token
        program  = local.program
        services = [{ name = "shop", port = 8000 }]
      })
    }
  }
}
output "edge" { value = provider::sallyport::cloud_init_edge({ token = "spe_1", program = local.program, region = "eu" }) }
output "services" { value = provider::sallyport::services_toml({ redundancy = 2, service = [{ name = "shop", port = 8000 }] }) }
`)
	w.Apply(t)
	found := outputs(t, w)
	if !strings.Contains(found["edge"].(string), "SALLYPORT_REGION=eu") {
		t.Errorf("the user data is %v", found["edge"])
	}
	if services := found["services"]; services != "redundancy = 2\n\n[[service]]\nname = 'shop'\nport = 8000\n" {
		t.Errorf("the services are %v", services)
	}
	data := w.Read(t, "user-data")
	if !strings.Contains(data, "SALLYPORT_TOKEN=spt_") {
		t.Error("the user data lacks the token")
	}
	if strings.Contains(w.Read(t, "terraform.tfstate"), "spt_") {
		t.Error("the state has the token")
	}
	w.Write(t, "main.tf", `output "edge" { value = provider::sallyport::cloud_init_edge({ tokn = "x" }) }`)
	w.Fails(t, []string{`no field "tokn"`, "token is missing"}, "plan", "-no-color")
}
