package provider_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/integrations/terraform/internal/acctest"
)

// writer is a resource that writes a text into a file when it is made.
func writer(name, text string) string {
	return `
resource "terraform_data" "` + name + `" {
  provisioner "local-exec" {
    command     = "printf %s \"$TEXT\" >` + name + `"
    environment = { TEXT = ` + text + ` }
  }
}
`
}

// hidden checks that neither plan nor state has a secret.
func hidden(t *testing.T, w *acctest.Workspace, plan acctest.Plan, secrets ...string) {
	t.Helper()
	for _, secret := range secrets {
		if len(secret) < 8 {
			t.Errorf("%q is no secret", secret)
		}
		if strings.Contains(plan.JSON+w.Read(t, "terraform.tfstate")+w.Must(t, "show", "-json"), secret) {
			t.Errorf("plan or state has %q", secret)
		}
	}
}

// TestTunnelCredential has a credential shown once, and rotated when it is asked for.
func TestTunnelCredential(t *testing.T) {
	text := func(name, rotate string) string {
		return `
resource "sallyport_socket" "it" { name = "credentials" }
resource "sallyport_tunnel" "it" { socket_id = sallyport_socket.it.id }
ephemeral "sallyport_tunnel_credential" "it" {
  socket_id = sallyport_socket.it.id
  tunnel_id = sallyport_tunnel.it.id
  rotate    = ` + rotate + `
}
` + writer("first", `coalesce(ephemeral.sallyport_tunnel_credential.it.credential, "none")`) + writer(name, `coalesce(ephemeral.sallyport_tunnel_credential.it.credential, "none")`)
	}
	_, w := one(t, text("again", "null"))
	plan := w.Plan(t)
	w.Must(t, "apply", "-no-color", "it.plan")
	made := w.Read(t, "first")
	if !strings.HasPrefix(made, "spc_") || w.Read(t, "again") != made {
		t.Fatalf("the credential is %q", made)
	}
	w.NoChanges(t)
	w.Write(t, "main.tf", text("later", "false"))
	w.Apply(t)
	if later := w.Read(t, "later"); later != "none" {
		t.Errorf("a later run shows %q", later)
	}
	w.Write(t, "main.tf", text("rotated", "true"))
	w.Apply(t)
	rotated := w.Read(t, "rotated")
	if !strings.HasPrefix(rotated, "spc_") || rotated == made {
		t.Errorf("the rotated credential is %q", rotated)
	}
	hidden(t, w, plan, made, rotated)
}

// TestEdgeToken makes tokens of a control with edges, and reads the edges.
func TestEdgeToken(t *testing.T) {
	t.Parallel()
	acctest.Need(t)
	account := acctest.StartControl(t)
	w := acctest.NewWorkspace(t, account)
	w.Write(t, "main.tf", `
ephemeral "sallyport_edge_token" "it" {
  name    = "eu-1"
  region  = "eu"
  minutes = 5
}
data "sallyport_edges" "it" {}
output "edges" { value = data.sallyport_edges.it.edges }
output "user_data_is_ephemeral" { value = terraform_data.user_data.id != "" }
`+writer("user_data", `provider::sallyport::cloud_init_edge({ token = ephemeral.sallyport_edge_token.it.token, installed = true })`))
	plan := w.Plan(t)
	w.Must(t, "apply", "-no-color", "it.plan")
	w.NoChanges(t)
	_, rest, _ := strings.Cut(w.Read(t, "user_data"), "SALLYPORT_JOIN=")
	token, _, _ := strings.Cut(rest, "\n")
	hidden(t, w, plan, token)
	items, _ := account.Call(t, http.MethodGet, "/v1/edge-tokens", nil)["items"].([]any)
	text, _ := json.Marshal(items)
	if len(items) != 3 || strings.Count(string(text), `"name":"eu-1","region":"eu"`) != 3 {
		t.Errorf("two plans and an apply made the tokens %s", text)
	}
	if edges, _ := outputs(t, w)["edges"].([]any); len(edges) != 0 {
		t.Errorf("there are edges: %v", edges)
	}
}
