package provider_test

import (
	"archive/zip"
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
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

// TestCredentialVersion has a credential rotated by another number, once, whatever becomes of an answer.
func TestCredentialVersion(t *testing.T) {
	text := func(version, name string) string {
		return `
resource "sallyport_socket" "it" { name = "versions" }
resource "sallyport_tunnel" "it" {
  socket_id          = sallyport_socket.it.id
  credential_version = ` + version + `
}
ephemeral "sallyport_initial_secret" "it" { id = sallyport_tunnel.it.id }
` + writer(name, `coalesce(ephemeral.sallyport_initial_secret.it.secret, "none")`)
	}
	account, w := one(t, text("1", "made"))
	proxy := account.NewProxy(t)
	w.Use(proxy)
	w.Apply(t)
	made := w.Read(t, "made")
	w.Write(t, "main.tf", text("2", "rotated"))
	plan := w.Plan(t)
	if change := plan.Changes["sallyport_tunnel.it"]; strings.Join(change.Different, " ") != "credential_version" {
		t.Errorf("the plan would %v %v", change.Actions, change.Different)
	}
	proxy.Add(acctest.Fault{Method: http.MethodPost, Prefix: "/v1/sockets/", Times: 1, IsLost: true})
	said := acctest.Flat(w.Must(t, "apply", "-no-color", "-auto-approve"))
	if !strings.Contains(said, "The tunnel gets another credential") {
		t.Errorf("nothing warns: %s", said)
	}
	rotated := w.Read(t, "rotated")
	if !strings.HasPrefix(rotated, "spc_") || rotated == made {
		t.Errorf("the credential is %q after %q", rotated, made)
	}
	w.NoChanges(t)

	// A rotation that fails is not in the state: the next apply does it.
	w.Write(t, "main.tf", text("3", "third"))
	proxy.Add(acctest.Fault{Method: http.MethodPost, Prefix: "/v1/sockets/", Status: http.StatusInternalServerError})
	w.Fails(t, []string{"The credential is the former one, or one that nobody got"}, "apply", "-auto-approve")
	if version := w.Attributes(t, "sallyport_tunnel.it")["credential_version"]; version != 2.0 {
		t.Errorf("the state has the version %v", version)
	}
	proxy.Clear()
	w.Apply(t)
	third := w.Read(t, "third")
	if !strings.HasPrefix(third, "spc_") || third == rotated {
		t.Errorf("the credential is %q after %q", third, rotated)
	}
	w.NoChanges(t)
	hidden(t, w, plan, made, rotated, third)
}

// TestLogs has no secret in any file of a run that writes everything into its log: state, plan, log.
func TestLogs(t *testing.T) {
	account, w := one(t, `
variable "password" {
  type      = string
  ephemeral = true
}
resource "sallyport_socket" "it" {
  name      = "logs"
  protected = {
    username    = "user"
    password_wo = var.password
  }
}
resource "sallyport_identity_provider" "it" {
  name             = "google"
  kind             = "google"
  client_id        = "x"
  client_secret_wo = var.password
}
resource "sallyport_tunnel" "it" { socket_id = sallyport_socket.it.id }
resource "sallyport_service_token" "it" { name = "logs" }
ephemeral "sallyport_initial_secret" "tunnel" { id = sallyport_tunnel.it.id }
ephemeral "sallyport_initial_secret" "token" { id = sallyport_service_token.it.id }
ephemeral "sallyport_access_token" "it" { scopes = ["sockets:read"] }
ephemeral "sallyport_service_token_certificate" "it" { service_token_id = sallyport_service_token.it.id }
`+writer("tunnel_out", "coalesce(ephemeral.sallyport_initial_secret.tunnel.secret, \"none\")")+
		writer("token_out", "coalesce(ephemeral.sallyport_initial_secret.token.secret, \"none\")")+
		writer("access_out", "ephemeral.sallyport_access_token.it.token")+
		writer("key_out", "ephemeral.sallyport_service_token_certificate.it.private_key_pem"))
	password := "pass-phrase-for-logs"
	w.Set("TF_VAR_password", password)
	w.Set("TF_LOG", "TRACE")
	w.Set("TF_LOG_PATH", "trace.log")
	w.Must(t, "plan", "-no-color", "-out", "it.plan")
	w.Must(t, "apply", "-no-color", "it.plan")
	w.Must(t, "plan", "-no-color")
	key := strings.Split(w.Read(t, "key_out"), "\n")[1] // the first line of its base64
	secrets := []string{password, account.Token, w.Read(t, "tunnel_out"), w.Read(t, "token_out"), w.Read(t, "access_out"), key}
	files := map[string]string{}
	for _, name := range []string{"trace.log", "terraform.tfstate"} {
		files[name] = w.Read(t, name)
	}
	if log := files["trace.log"]; !strings.Contains(log, "[TRACE] provider.terraform-provider-sallyport") {
		t.Fatalf("the log of %d bytes has nothing of the provider", len(log))
	}
	archive, err := zip.OpenReader(filepath.Join(w.Folder, "it.plan"))
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	for _, entry := range archive.File {
		file, err := entry.Open()
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(file)
		if err != nil {
			t.Fatal(err)
		}
		files["it.plan: "+entry.Name] = string(text)
	}
	for name, text := range files {
		for _, secret := range secrets {
			if len(secret) < 8 {
				t.Errorf("%q is no secret", secret)
			}
			if place := strings.Index(text, secret); place >= 0 {
				t.Errorf("%s has a secret: ...%q", name, text[max(0, place-200):place])
			}
		}
	}
}

// TestServerThatEchoes has no secret in a message, although a server says what it was sent.
func TestServerThatEchoes(t *testing.T) {
	_, w := one(t, `
resource "sallyport_socket" "it" {
  name      = "echo"
  protected = {
    username    = "user"
    password_wo = "pass-phrase-that-returns"
  }
}
`)
	server := httptest.NewTLSServer(http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		if request.Method == http.MethodGet {
			_, _ = io.WriteString(writer, `{"version": "0.0.0"}`)
			return
		}
		body, _ := io.ReadAll(request.Body)
		writer.WriteHeader(http.StatusUnprocessableEntity)
		_ = json.NewEncoder(writer).Encode(map[string]any{"status": 422, "detail": "wrong: " + request.Header.Get("Authorization") + " " + string(body)})
	}))
	defer server.Close()
	w.Write(t, "ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
	w.Set("SALLYPORT_API", server.URL)
	w.Set("SALLYPORT_CA", filepath.Join(w.Folder, "ca.pem"))
	token := "spt_token-that-returns"
	w.Set("SALLYPORT_TOKEN", token)
	said := w.Fails(t, []string{"Wrong: Bearer (secret)", `"password":"(secret)"`}, "apply", "-auto-approve")
	if strings.Contains(said, token) || strings.Contains(said, "pass-phrase-that-returns") {
		t.Errorf("the message has a secret: %s", said)
	}
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
