package provider_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/sallyport/sallyport/integrations/terraform/internal/acctest"
	"github.com/sallyport/sallyport/integrations/terraform/internal/client"
)

// loseByName deletes an object by its name, and lose by its id.
func loseByName(collection string) func(*testing.T, *acctest.Account, map[string]any) {
	return func(t *testing.T, account *acctest.Account, attributes map[string]any) {
		account.Call(t, http.MethodDelete, collection+"/"+byName(attributes), nil)
	}
}

func lose(collection string) func(*testing.T, *acctest.Account, map[string]any) {
	return func(t *testing.T, account *acctest.Account, attributes map[string]any) {
		account.Call(t, http.MethodDelete, fmt.Sprintf("%s/%s", collection, attributes["id"]), nil)
	}
}

func oidcCase() acctest.Case {
	full := func(name, client, version, more string) string {
		return `
resource "sallyport_identity_provider" "it" {
  name                     = "` + name + `"
  kind                     = "oidc"
  issuer                   = "https://id.example.com"
  client_id                = "` + client + `"
  client_secret_wo         = var.secret
  client_secret_wo_version = ` + version + `
  scopes                   = ["groups", "offline_access"]
  groups_claim             = "/realm_access/roles"
  ` + more + `
}
`
	}
	return acctest.Case{
		Resource: "sallyport_identity_provider",
		Minimal: `resource "sallyport_identity_provider" "it" {
  name             = "google"
  kind             = "google"
  client_id        = "sallyport"
  client_secret_wo = var.secret
}`,
		Full:      full("company", "sallyport", "1", "check_minutes = 10\n  trust_email = true"),
		Changed:   full("company", "other", "2", "check_minutes = 0"),
		Differing: []string{"client_id", "client_secret_wo_version", "check_minutes", "trust_email"},
		Replaced:  full("another", "other", "2", "check_minutes = 0"),
		Elsewhere: func(t *testing.T, account *acctest.Account, attributes map[string]any) {
			account.Call(t, http.MethodPatch, "/v1/providers/"+byName(attributes),
				client.Object{"groups_claim": nil, "scopes": []any{}})
		},
		Drift:     []string{"groups_claim", "scopes"},
		ImportID:  byName,
		Lose:      loseByName("/v1/providers"),
		Variables: map[string]string{"secret": "client-secret-of-a-test"},
	}
}

func localPersonsCase() acctest.Case {
	return acctest.Case{
		Resource: "sallyport_identity_provider",
		Name:     "-local",
		Minimal: `resource "sallyport_identity_provider" "it" {
  name = "people"
  kind = "local"
}`,
		Full: `resource "sallyport_identity_provider" "it" {
  name             = "people"
  kind             = "local"
  require_totp     = true
  hook             = "https://mail.example.com/sallyport"
  client_secret_wo = var.secret
  # The secret is new: only another version has it sent.
  client_secret_wo_version = 2
}`,
		ImportID: byName,
		// The number is of the configuration alone.
		ImportDiffers: []string{"client_secret_wo_version"},
		Lose:          loseByName("/v1/providers"),
		Variables:     map[string]string{"secret": "secret-of-the-hook-of-a-test-0123456789"},
	}
}

func serviceTokenCase() acctest.Case {
	full := func(name string) string {
		return `
resource "sallyport_service_token" "it" {
  name         = "` + name + `"
  display_name = "Builds"
  email        = "ci@example.com"
  expires_at   = "2099-01-01T01:00:00+01:00"
  sockets      = [sallyport_socket.shop.id]
  scope = {
    methods   = ["GET", "POST"]
    paths     = ["/api"]
    types     = ["http"]
    ports     = [443]
    read_only = false
  }
}
`
	}
	return acctest.Case{
		Resource: "sallyport_service_token",
		Others:   `resource "sallyport_socket" "shop" { name = "tokens" }`,
		Minimal:  `resource "sallyport_service_token" "it" { name = "ci" }`,
		Full:     full("ci"),
		Words:    []string{"expires_at"},
		Replaced: full("builds"),
		Lose:     lose("/v1/service-tokens"),
		Secrets:  []string{"sps_"},
	}
}

const (
	oneKey   = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ"
	otherKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBv8ZpsNXSnh8zYXi7xq9QYvU0kFFtyKhCxJ4pzqCb3X"
)

func sshKeyCase() acctest.Case {
	key := func(name, line string) string {
		return `resource "sallyport_ssh_key" "it" {
  public_key = "` + line + `"
  ` + name + `
}`
	}
	return acctest.Case{
		Resource: "sallyport_ssh_key",
		Minimal:  key("", oneKey+" ann@laptop"),
		Full:     key(`name = "laptop"`, oneKey+" ann@laptop"),
		Words:    []string{"public_key"},
		Replaced: key(`name = "desk"`, oneKey),
		Lose:     lose("/v1/ssh-keys"),
	}
}

func organisationCase() acctest.Case {
	full := func(name, command string) string {
		return `resource "sallyport_organisation" "it" {
  name = "` + name + `"
  ssh_authority = {
    extensions         = ["permit-pty"]
    force_command      = "` + command + `"
    mysocket_principal = true
  }
}`
	}
	return acctest.Case{
		Resource:      "sallyport_organisation",
		Minimal:       `resource "sallyport_organisation" "it" { name = "Example Ltd" }`,
		Full:          full("Example Ltd", "/usr/bin/uptime"),
		Changed:       full("Example Inc", "/usr/bin/w"),
		Differing:     []string{"name", "ssh_authority"},
		ImportDiffers: []string{"ssh_authority"},
		Elsewhere: func(t *testing.T, account *acctest.Account, _ map[string]any) {
			account.Call(t, http.MethodPatch, "/v1/ssh-authority", client.Object{"force_command": nil})
			account.Call(t, http.MethodPatch, "/v1/organisation", client.Object{"name": "Another"})
		},
		Drift: []string{"name", "ssh_authority"},
	}
}

func memberCase() acctest.Case {
	full := func(email, role string) string {
		return `resource "sallyport_member" "it" {
  email = "` + email + `"
  role  = "` + role + `"
}`
	}
	return acctest.Case{
		Resource: "sallyport_member",
		Prepare: func(t *testing.T, account *acctest.Account) map[string]string {
			return map[string]string{"EMAIL": "Member-of-" + account.Email}
		},
		Minimal:   full("{EMAIL}", "viewer"),
		Full:      full("{EMAIL}", "member"),
		Changed:   full("{EMAIL}", "admin"),
		Differing: []string{"role"},
		Replaced:  full("another-{EMAIL}", "admin"),
		Words:     []string{"email"},
		ImportID:  func(attributes map[string]any) string { return attributes["email"].(string) },
		Lose: func(t *testing.T, account *acctest.Account, attributes map[string]any) {
			page := account.Call(t, http.MethodGet, "/v1/invitations", nil)
			for _, item := range page["items"].([]any) {
				account.Call(t, http.MethodDelete, fmt.Sprintf("/v1/invitations/%s", item.(client.Object)["id"]), nil)
			}
		},
	}
}
