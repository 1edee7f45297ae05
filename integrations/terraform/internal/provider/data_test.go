package provider_test

import (
	"crypto/tls"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/integrations/terraform/internal/acctest"
	"github.com/sallyport/sallyport/integrations/terraform/internal/client"
)

// outputs returns the outputs of a workspace.
func outputs(t *testing.T, w *acctest.Workspace) map[string]any {
	t.Helper()
	var found map[string]struct {
		Value any `json:"value"`
	}
	if err := json.Unmarshal([]byte(w.Must(t, "output", "-json")), &found); err != nil {
		t.Fatal(err)
	}
	values := map[string]any{}
	for name, output := range found {
		values[name] = output.Value
	}
	return values
}

func TestDataSources(t *testing.T) {
	_, w := one(t, `
resource "sallyport_socket" "web" {
  name   = "web"
  labels = { team = "web", tier = "front" }
}
resource "sallyport_socket" "db" {
  name   = "db"
  type   = "tcp"
  labels = { team = "db" }
}
resource "sallyport_policy" "staff" {
  name     = "staff"
  document = data.sallyport_policy_document.staff.json
}
data "sallyport_policy_document" "staff" {
  allow {
    name  = "office"
    who   = { email_domains = ["example.com"], groups = ["staff"] }
    where = ["192.0.2.0/24"]
    when  = { time_zone = "Europe/Zurich", weekly = [{ days = ["mon"], from = "08:00", to = "18:00" }] }
    what  = { methods = ["GET"] }
  }
  deny { where = ["198.51.100.0/24"] }
}
data "sallyport_info" "this" {}
data "sallyport_socket" "db" {
  name       = "db"
  depends_on = [sallyport_socket.db]
}
data "sallyport_sockets" "web" {
  labels     = { team = "web", tier = "" }
  depends_on = [sallyport_socket.web, sallyport_socket.db]
}
data "sallyport_policies" "all" { depends_on = [sallyport_policy.staff] }
output "domain" { value = data.sallyport_info.this.domain }
output "authority" { value = data.sallyport_info.this.ca_pem }
output "db" { value = [data.sallyport_socket.db.id == sallyport_socket.db.id, data.sallyport_socket.db.type, data.sallyport_socket.db.tunnels_up] }
output "web" { value = [for socket in data.sallyport_sockets.web.sockets : socket.name] }
output "policies" { value = [for policy in data.sallyport_policies.all.policies : policy.name] }
`)
	w.Apply(t)
	w.NoChanges(t)
	found := outputs(t, w)
	db := found["db"].([]any)
	if found["domain"] != "localhost" || !strings.HasPrefix(found["authority"].(string), "-----BEGIN CERTIFICATE-----") {
		t.Errorf("the installation is %v", found)
	}
	if db[0] != true || db[1] != "tcp" || db[2] != 0.0 {
		t.Errorf("the socket is %v", db)
	}
	if web := found["web"].([]any); len(web) != 1 || web[0] != "web" {
		t.Errorf("the sockets of the labels are %v", web)
	}
	if policies := found["policies"].([]any); len(policies) != 1 || policies[0] != "staff" {
		t.Errorf("the policies are %v", policies)
	}
}

func TestDataSourcesThatFindNothing(t *testing.T) {
	_, w := one(t, "")
	for text, words := range map[string]string{
		`data "sallyport_socket" "none" { name = "nobody" }`:                           `There are 0 sockets with the name "nobody"`,
		`data "sallyport_socket" "none" {}`:                                            "Write one of `id`, `name` and `dns_name`",
		"data \"sallyport_socket\" \"none\" {\n name = \"a\"\n id = \"b\"\n}":          "one is enough to find the socket",
		"data \"sallyport_policy_document\" \"none\" {\n allow {\n people = []\n }\n}": `"people" is not expected here`,
	} {
		w.Write(t, "main.tf", text)
		w.Fails(t, []string{words}, "plan", "-no-color")
	}
}

func TestAccessTokensEndWithTheirRun(t *testing.T) {
	account, w := one(t, `
ephemeral "sallyport_access_token" "run" {
  name    = "provisioner"
  scopes  = ["sockets:read"]
  minutes = 5
}
resource "terraform_data" "it" {
  provisioner "local-exec" {
    command     = "printf %s \"$TOKEN\" > token; curl -sS --cacert \"$SALLYPORT_CA\" -o sockets -H \"Authorization: Bearer $TOKEN\" \"$SALLYPORT_API/v1/sockets\""
    environment = { TOKEN = ephemeral.sallyport_access_token.run.token }
  }
}
`)
	w.Apply(t)
	token := w.Read(t, "token")
	if !strings.HasPrefix(token, "spt_") || !strings.Contains(w.Read(t, "sockets"), `"items"`) {
		t.Fatalf("the provisioner got the token %q, and with it %q", token, w.Read(t, "sockets"))
	}
	if strings.Contains(w.Read(t, "terraform.tfstate"), token) {
		t.Error("the state has the token")
	}
	for _, item := range account.Call(t, http.MethodGet, "/v1/tokens", nil)["items"].([]any) {
		if item.(client.Object)["name"] == "provisioner" {
			t.Error("the token is still there after the run")
		}
	}
}

func TestCertificatesOfServiceTokens(t *testing.T) {
	_, w := one(t, `
resource "sallyport_service_token" "ci" { name = "ci" }
ephemeral "sallyport_initial_secret" "ci" { id = sallyport_service_token.ci.id }
ephemeral "sallyport_service_token_certificate" "ci" {
  service_token_id = sallyport_service_token.ci.id
  days             = 1
}
resource "terraform_data" "it" {
  provisioner "local-exec" {
    command     = "printf %s \"$KEY\" > key; printf %s \"$CERTIFICATE\" > certificate; printf %s \"$SECRET\" > secret"
    environment = {
      KEY         = ephemeral.sallyport_service_token_certificate.ci.private_key_pem
      CERTIFICATE = ephemeral.sallyport_service_token_certificate.ci.certificate_pem
      SECRET      = ephemeral.sallyport_initial_secret.ci.secret
    }
  }
}
`)
	w.Apply(t)
	if _, err := tls.LoadX509KeyPair(filepath.Join(w.Folder, "certificate"), filepath.Join(w.Folder, "key")); err != nil {
		t.Error(err)
	}
	state := w.Read(t, "terraform.tfstate")
	for _, name := range []string{"key", "secret"} {
		text, err := os.ReadFile(filepath.Join(w.Folder, name))
		if err != nil || len(text) < 16 || strings.Contains(state, string(text)) {
			t.Errorf("%s: %v, %d bytes, in the state: %v", name, err, len(text), strings.Contains(state, string(text)))
		}
	}
	w.NoChanges(t)
}
