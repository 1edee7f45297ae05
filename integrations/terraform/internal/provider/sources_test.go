package provider_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/integrations/terraform/internal/acctest"
	"github.com/sallyport/sallyport/integrations/terraform/internal/client"
)

// outputs returns the outputs of the state.
func outputs(t *testing.T, w *acctest.Workspace) map[string]any {
	t.Helper()
	var read map[string]struct{ Value any }
	if err := json.Unmarshal([]byte(w.Must(t, "output", "-json")), &read); err != nil {
		t.Fatal(err)
	}
	values := map[string]any{}
	for name, output := range read {
		values[name] = output.Value
	}
	return values
}

// TestSources reads every data source, and a second plan is empty.
func TestSources(t *testing.T) {
	account, w := one(t, `
resource "sallyport_socket" "a" {
  name   = "source-a"
  labels = { env = "prod", team = "web" }
}
resource "sallyport_socket" "b" {
  name   = "source-b"
  type   = "tcp"
  labels = { env = "prod" }
}
resource "sallyport_tunnel" "one" {
  socket_id = sallyport_socket.a.id
  name      = "source-one"
}
data "sallyport_policy_document" "staff" {
  allow = [{
    name  = "office hours"
    who   = { email_domains = ["example.com"], groups = ["staff"] }
    where = ["192.0.2.0/24"]
    when  = { time_zone = "Europe/Zurich", weekly = [{ days = ["mon"], from = "08:00", to = "18:00" }] }
    what  = { methods = ["GET"], paths = ["/app"], ports = [443] }
    ssh   = { extensions = [] }
  }, { who = { anyone = false, emails = ["ann@example.com"] } }]
  deny = [{ where = ["198.51.100.0/24"] }]
}
resource "sallyport_policy" "staff" {
  name     = "source-staff"
  labels   = { env = "prod" }
  document = data.sallyport_policy_document.staff.json
}
data "sallyport_info" "it" {}
data "sallyport_socket" "by_name" {
  name       = sallyport_socket.a.name
  depends_on = [sallyport_tunnel.one]
}
data "sallyport_socket" "by_id" { id = sallyport_socket.b.id }
data "sallyport_sockets" "all" { depends_on = [sallyport_socket.a, sallyport_socket.b] }
data "sallyport_sockets" "some" {
  labels     = { env = "prod", team = "web" }
  depends_on = [sallyport_socket.a, sallyport_socket.b]
}
data "sallyport_policies" "some" {
  labels     = { env = "prod" }
  depends_on = [sallyport_policy.staff]
}
output "info" { value = data.sallyport_info.it }
output "by_name" { value = data.sallyport_socket.by_name }
output "by_id" { value = data.sallyport_socket.by_id }
output "all" { value = sort(data.sallyport_sockets.all.sockets[*].name) }
output "some" { value = data.sallyport_sockets.some.sockets[*].name }
output "policies" { value = data.sallyport_policies.some.policies }
output "json" { value = data.sallyport_policy_document.staff.json }
`)
	w.Apply(t)
	w.NoChanges(t)
	found := outputs(t, w)
	at := func(name, key string) any { return found[name].(map[string]any)[key] }
	if at("info", "api") != account.API || at("info", "domain") != "localhost" || !strings.Contains(fmt.Sprint(at("info", "ca_pem")), "BEGIN CERTIFICATE") {
		t.Errorf("the installation is %v", found["info"])
	}
	tunnels, _ := at("by_name", "tunnels").([]any)
	if at("by_name", "tunnels_total") != 1.0 || len(tunnels) != 1 || tunnels[0].(map[string]any)["name"] != "source-one" {
		t.Errorf("the socket is %v", found["by_name"])
	}
	if at("by_id", "name") != "source-b" || at("by_id", "port") == nil {
		t.Errorf("the socket is %v", found["by_id"])
	}
	if fmt.Sprint(found["all"], found["some"]) != "[source-a source-b] [source-a]" {
		t.Errorf("the sockets are %v and %v", found["all"], found["some"])
	}
	policies, _ := found["policies"].([]any)
	if len(policies) != 1 || policies[0].(map[string]any)["name"] != "source-staff" || !json.Valid([]byte(fmt.Sprint(policies[0].(map[string]any)["document"]))) {
		t.Errorf("the policies are %v", policies)
	}
	want := `{"allow":[{"name":"office hours","ssh":{"extensions":[]},"what":{"methods":["GET"],"paths":["/app"],"ports":[443]},` +
		`"when":{"time_zone":"Europe/Zurich","weekly":[{"days":["mon"],"from":"08:00","to":"18:00"}]},"where":["192.0.2.0/24"],"who":{"email_domains":["example.com"],"groups":["staff"]}},` +
		`{"who":{"anyone":false,"emails":["ann@example.com"]}}],"deny":[{"where":["198.51.100.0/24"]}]}`
	if found["json"] != want {
		t.Errorf("the document is %v", found["json"])
	}
	// What is measured changes no plan of resources.
	account.Call(t, http.MethodPost, "/v1/sockets/source-a/tunnels", client.Object{"name": "source-two"})
	if plan := w.Plan(t); plan.Changes["sallyport_socket.a"].Actions[0] != "no-op" {
		t.Errorf("another tunnel changes the plan: %v", plan.Changes)
	}
}

// TestSourcesRefuse asks for what is not there.
func TestSourcesRefuse(t *testing.T) {
	acctest.Need(t).NewAccount(t) // so that the next account does not own the installation
	_, w := one(t, "")
	for words, text := range map[string]string{
		"Cannot read the socket":       `data "sallyport_socket" "it" { name = "nothing" }`,
		"Set one of `id` and `name`":   `data "sallyport_socket" "it" {}`,
		"The policy has no rule":       `data "sallyport_policy_document" "it" {}`,
		"for the account that owns":    `data "sallyport_edges" "it" {}`,
		"Label":                        `data "sallyport_sockets" "it" { labels = { "" = "x" } }`,
		"Cannot make the API token":    "ephemeral \"sallyport_access_token\" \"it\" { scopes = [] }",
		"`minutes` is 0":               "ephemeral \"sallyport_access_token\" \"it\" {\n  scopes = [\"audit:read\"]\n  minutes = 0\n}",
		"Cannot make the certificate ": `ephemeral "sallyport_service_token_certificate" "it" { service_token_id = "none" }`,
	} {
		w.Write(t, "main.tf", text+"\n")
		_, all, err := w.Run("plan", "-no-color")
		if flat := acctest.Flat(all); err == nil || !strings.Contains(flat, words) {
			t.Errorf("%q is not what is said: %s", words, flat)
		}
	}
}
