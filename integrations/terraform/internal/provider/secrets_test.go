package provider_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/integrations/terraform/internal/acctest"
	"github.com/sallyport/sallyport/integrations/terraform/internal/client"
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

func tokens(t *testing.T, account *acctest.Account) []string {
	t.Helper()
	items, _ := account.Call(t, http.MethodGet, "/v1/tokens", nil)["items"].([]any)
	names := []string{}
	for _, item := range items {
		names = append(names, fmt.Sprint(item.(map[string]any)["name"]))
	}
	return names
}

// TestAccessToken uses tokens in a run, and looks which are left.
func TestAccessToken(t *testing.T) {
	account, w := one(t, `
ephemeral "sallyport_access_token" "run" { scopes = ["sockets:read"] }
ephemeral "sallyport_access_token" "machine" {
  name    = "machine"
  scopes  = ["tunnels:connect"]
  minutes = 5
  keep    = true
}
`+writer("run", "ephemeral.sallyport_access_token.run.token")+writer("machine", "ephemeral.sallyport_access_token.machine.token"))
	plan := w.Plan(t)
	if left := tokens(t, account); fmt.Sprint(left) != "[test machine]" {
		t.Errorf("a plan leaves the tokens %v", left)
	}
	w.Must(t, "apply", "-no-color", "it.plan")
	if left := tokens(t, account); fmt.Sprint(left) != "[test machine machine]" {
		t.Errorf("an apply leaves the tokens %v", left)
	}
	w.NoChanges(t)
	hidden(t, w, plan, w.Read(t, "run"), w.Read(t, "machine"))
	for name, isGood := range map[string]bool{"run": false, "machine": true} {
		api, err := client.New(client.Config{API: account.API, CA: account.CA, Token: w.Read(t, name), Version: "test"})
		if err != nil {
			t.Fatal(err)
		}
		if err := api.Check(t.Context()); (err == nil) != isGood {
			t.Errorf("the token of %s: %v", name, err)
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

// TestServiceTokenCertificate opens a socket's door with a certificate that Terraform has made.
func TestServiceTokenCertificate(t *testing.T) {
	account, w := one(t, `
resource "sallyport_service_token" "it" { name = "robot" }
resource "sallyport_policy" "it" {
  name     = "robots"
  document = jsonencode({ allow = [{ who = { service_tokens = [sallyport_service_token.it.name] } }] })
}
resource "sallyport_socket" "it" {
  name     = "certified"
  identity = {}
  policies = [sallyport_policy.it.name]
}
ephemeral "sallyport_service_token_certificate" "it" { service_token_id = sallyport_service_token.it.id }
`+writer("certificate", `"${ephemeral.sallyport_service_token_certificate.it.certificate}${ephemeral.sallyport_service_token_certificate.it.authority}"`)+
		writer("key", "ephemeral.sallyport_service_token_certificate.it.private_key"))
	plan := w.Plan(t)
	w.Must(t, "apply", "-no-color", "it.plan")
	w.NoChanges(t)
	pair, err := tls.LoadX509KeyPair(filepath.Join(w.Folder, "certificate"), filepath.Join(w.Folder, "key"))
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil || len(leaf.URIs) != 1 || !strings.HasPrefix(leaf.URIs[0].String(), "urn:sallyport:service-token:") {
		t.Fatalf("the certificate is %v: %v", leaf, err)
	}
	block, _ := pem.Decode([]byte(w.Read(t, "key")))
	hidden(t, w, plan, strings.Split(w.Read(t, "key"), "\n")[1])
	if block == nil || block.Type != "PRIVATE KEY" {
		t.Error("the key is no key")
	}
	// The edge asks for an origin then, which is not there; without the certificate it asks for a login.
	url := w.Attributes(t, "sallyport_socket.it")["url"].(string)
	if with, without := status(t, account, url, &pair), status(t, account, url, nil); with == without || with != http.StatusServiceUnavailable && with != http.StatusBadGateway {
		t.Errorf("with the certificate the edge answers %d, and without %d", with, without)
	}
}

// status asks a socket's address, without following to a login.
func status(t *testing.T, account *acctest.Account, url string, pair *tls.Certificate) int {
	t.Helper()
	transport := account.Transport(t)
	if pair != nil {
		transport.TLSClientConfig.Certificates = []tls.Certificate{*pair}
	}
	defer transport.CloseIdleConnections()
	asking := http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	answer, err := asking.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	return answer.StatusCode
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
