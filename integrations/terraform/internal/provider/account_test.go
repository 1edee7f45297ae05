package provider_test

import (
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/integrations/terraform/internal/acctest"
	"github.com/sallyport/sallyport/integrations/terraform/internal/client"
)

// byPath changes and deletes what has an id of its own.
func byPath(method, collection, attribute string, body any) func(*testing.T, *acctest.Account, map[string]any) {
	return func(t *testing.T, account *acctest.Account, attributes map[string]any) {
		account.Call(t, method, fmt.Sprintf("%s/%s", collection, attributes[attribute]), body)
	}
}

// attribute makes the import id of what is imported by another attribute than its id.
func attribute(name string) func(map[string]any) string {
	return func(attributes map[string]any) string { return attributes[name].(string) }
}

func identityProviderCase() acctest.Case {
	full := func(client, version, more string) string {
		return `
resource "sallyport_identity_provider" "it" {
  name                     = "work"
  kind                     = "oidc"
  issuer                   = "https://login.example.com/realms/work/"
  client_id                = "` + client + `"
  client_secret_wo         = var.client_secret
  client_secret_wo_version = ` + version + `
  scopes                   = ["groups", "offline_access"]
  groups_claim             = "/realm_access/roles"
  trust_email              = true
  ` + more + `
}
`
	}
	return acctest.Case{
		Resource: "sallyport_identity_provider",
		Minimal: `resource "sallyport_identity_provider" "it" {
  name             = "work"
  kind             = "oidc"
  issuer           = "https://login.example.com"
  client_id        = "sallyport"
  client_secret_wo = var.client_secret
}`,
		Variables:     map[string]string{"client_secret": "client-secret-of-this-test"},
		Full:          full("sallyport", "2", "check_minutes = 7\n  force = true"),
		Changed:       full("other", "3", "check_minutes = 9"),
		Differing:     []string{"client_id", "client_secret_wo_version", "check_minutes", "force"},
		Replaced:      strings.Replace(full("other", "3", ""), `"work"`, `"elsewhere"`, 1),
		ImportDiffers: []string{"client_secret_wo_version", "force"},
		Words:         []string{"issuer"},
		ImportID:      attribute("name"),
		Elsewhere:     byPath(http.MethodPatch, "/v1/providers", "name", client.Object{"scopes": []any{"groups"}, "trust_email": false}),
		Drift:         []string{"scopes", "trust_email"},
		Lose:          byPath(http.MethodDelete, "/v1/providers", "name", nil),
	}
}

func githubProviderCase() acctest.Case {
	return acctest.Case{
		Resource: "sallyport_identity_provider",
		Name:     "-kinds",
		Minimal: `resource "sallyport_identity_provider" "it" {
  name = "home"
  kind = "local"
}`,
		Full: `resource "sallyport_identity_provider" "it" {
  name             = "hub"
  kind             = "github"
  client_id        = "x"
  client_secret_wo = var.client_secret
}`,
		ImportID:  attribute("name"),
		Variables: map[string]string{"client_secret": "another-secret-of-this-test"},
	}
}

func serviceTokenCase() acctest.Case {
	full := func(name string) string {
		return `
resource "sallyport_service_token" "it" {
  name         = "` + name + `"
  email        = "Robot@example.com"
  display_name = "The robot"
  expires_at   = "2099-01-01T00:00:00+01:00"
  sockets      = [sallyport_socket.shop.id]
  scope        = { methods = ["get"], paths = ["/api"], types = ["http"], read_only = true, ports = [443] }
}
`
	}
	return acctest.Case{
		Resource: "sallyport_service_token",
		Others:   `resource "sallyport_socket" "shop" { name = "tokens" }`,
		Minimal:  `resource "sallyport_service_token" "it" { name = "robot" }`,
		Full:     full("robot"),
		Replaced: full("machine"),
		Words:    []string{"expires_at", "scope", "email"},
		Lose:     byPath(http.MethodDelete, "/v1/service-tokens", "id", nil),
		Secrets:  []string{"sps_"},
	}
}

func memberCase() acctest.Case {
	member := func(email, role string) string {
		return fmt.Sprintf("resource \"sallyport_member\" \"it\" {\n  email = %q\n  role  = %q\n}\n", email, role)
	}
	return acctest.Case{
		Resource:  "sallyport_member",
		Minimal:   member("Ann@Example.com", "viewer"),
		Full:      member("Ann@Example.com", "member"),
		Changed:   member("Ann@Example.com", "admin"),
		Differing: []string{"role"},
		Replaced:  member("bob@example.com", "admin"),
		ImportID:  attribute("email"),
		Elsewhere: func(t *testing.T, account *acctest.Account, _ map[string]any) {
			account.Call(t, http.MethodPost, "/v1/invitations", client.Object{"email": "ann@example.com", "role": "viewer"})
		},
		Drift: []string{"role"},
		Words: []string{"email"},
		Lose: func(t *testing.T, account *acctest.Account, _ map[string]any) {
			items, _ := account.Call(t, http.MethodGet, "/v1/invitations", nil)["items"].([]any)
			for _, item := range items {
				account.Call(t, http.MethodDelete, "/v1/invitations/"+item.(map[string]any)["id"].(string), nil)
			}
		},
		Secrets: []string{"spi_"},
	}
}

// TestMemberWhoCame changes and removes somebody who has taken the invitation.
func TestMemberWhoCame(t *testing.T) {
	account, w := one(t, `
resource "sallyport_member" "it" {
  email = "ann@members.example.com"
  role  = "viewer"
}
ephemeral "sallyport_initial_secret" "code" { id = sallyport_member.it.id }
resource "terraform_data" "message" {
  provisioner "local-exec" {
    command     = "printf %s \"$CODE\" >code"
    environment = { CODE = coalesce(ephemeral.sallyport_initial_secret.code.secret, "none") }
  }
}
`)
	w.Apply(t)
	ann := account.Server.NewAccountOf(t, "ann@members.example.com")
	ann.CallLoggedIn(t, http.MethodPost, "/v1/account/invitations/accept", client.Object{"code": w.Read(t, "code")})
	w.NoChanges(t)
	w.Write(t, "main.tf", "resource \"sallyport_member\" \"it\" {\n  email = \"ann@members.example.com\"\n  role  = \"admin\"\n}\n")
	w.Apply(t)
	w.NoChanges(t)
	roles := func() string {
		items, _ := account.Call(t, http.MethodGet, "/v1/members", nil)["items"].([]any)
		found := ""
		for _, item := range items {
			found += fmt.Sprint(item.(map[string]any)["email"], " ", item.(map[string]any)["role"], "; ")
		}
		return found
	}
	if now := roles(); !strings.Contains(now, "ann@members.example.com admin;") {
		t.Errorf("the members are %s", now)
	}
	w.Must(t, "destroy", "-auto-approve", "-no-color")
	if now := roles(); strings.Contains(now, "ann@") {
		t.Errorf("the members are %s", now)
	}
}

func newSSHKey(t *testing.T, comment string) string {
	t.Helper()
	file := t.TempDir() + "/key"
	if text, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", file).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	text, err := exec.Command("cat", file+".pub").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

func sshKeyCase() acctest.Case {
	full := func(key string) string {
		return "resource \"sallyport_ssh_key\" \"it\" {\n  public_key = \"" + key + "\\n\"\n  name       = \"laptop\"\n}\n"
	}
	return acctest.Case{
		Resource: "sallyport_ssh_key",
		Prepare: func(t *testing.T, _ *acctest.Account) map[string]string {
			return map[string]string{"KEY": newSSHKey(t, "me@there"), "OTHER": newSSHKey(t, "")}
		},
		Minimal:  `resource "sallyport_ssh_key" "it" { public_key = "{KEY}" }`,
		Full:     full("{KEY}"),
		Replaced: full("{OTHER}"),
		Words:    []string{"public_key"},
		Lose:     byPath(http.MethodDelete, "/v1/ssh-keys", "id", nil),
	}
}

func organisationCase() acctest.Case {
	full := func(name, command string) string {
		return `
resource "sallyport_organisation" "it" {
  name          = "` + name + `"
  ssh_authority = { extensions = ["permit-pty"], force_command = "` + command + `", mysocket_principal = true }
}
`
	}
	return acctest.Case{
		Resource:  "sallyport_organisation",
		Minimal:   `resource "sallyport_organisation" "it" { name = "Example" }`,
		Full:      full("Example", "/usr/bin/true"),
		Changed:   full("Another", "/usr/bin/false"),
		Differing: []string{"name", "ssh_authority"},
		Elsewhere: func(t *testing.T, account *acctest.Account, _ map[string]any) {
			account.Call(t, http.MethodPatch, "/v1/organisation", client.Object{"name": "Elsewhere"})
			account.Call(t, http.MethodPatch, "/v1/ssh-authority", client.Object{"extensions": []any{}, "force_command": nil})
		},
		Drift: []string{"name", "ssh_authority"},
	}
}
