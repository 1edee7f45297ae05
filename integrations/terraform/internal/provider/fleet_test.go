package provider_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/integrations/terraform/internal/acctest"
	"github.com/sallyport/sallyport/integrations/terraform/internal/client"
)

// edgeCase is an edge that no machine has joined: its name, and the token that waits.
func edgeCase() acctest.Case {
	return acctest.Case{
		Resource:         "sallyport_edge",
		IsOfInstallation: true,
		// The token is for a machine alone.
		Others: `
ephemeral "sallyport_initial_secret" "it" { id = sallyport_edge.it.id }
resource "terraform_data" "machine" {
  triggers_replace = sallyport_edge.it.token_id
  provisioner "local-exec" {
    command     = "test -z \"$TOKEN\" || printf '%.4s ' \"$TOKEN\" >>tokens"
    environment = { TOKEN = coalesce(ephemeral.sallyport_initial_secret.it.secret, "none") }
  }
}
`,
		Minimal: `resource "sallyport_edge" "it" { name = "case-1" }`,
		Full: `resource "sallyport_edge" "it" {
  name          = "case-1"
  region        = "eu"
  token_minutes = 10
}`,
		Changed: `resource "sallyport_edge" "it" {
  name          = "case-1"
  region        = "eu"
  token_minutes = 20
}`,
		Differing: []string{"token_minutes"},
		Replaced: `resource "sallyport_edge" "it" {
  name   = "case-2"
  region = "eu"
}`,
		// How long a token is good is not what the API says of it later.
		ImportDiffers: []string{"token_minutes"},
		ImportID:      byName,
		Lose: func(t *testing.T, account *acctest.Account, attributes map[string]any) {
			account.Call(t, http.MethodDelete, fmt.Sprintf("/v1/edge-tokens/%s", attributes["token_id"]), nil)
		},
		Secrets: []string{"spe_"},
	}
}

// anycastPrefixCase is a prefix, which nobody can change but by another one.
func anycastPrefixCase() acctest.Case {
	full := func(prefix string) string {
		return `resource "sallyport_anycast_prefix" "it" {
  prefix      = "` + prefix + `"
  addresses   = ["198.51.101.7", "198.51.101.8"]
  regions     = ["nowhere"]
  communities = ["64500:1", "64500:1:2"]
  min_sites   = 2
}`
	}
	return acctest.Case{
		Resource:         "sallyport_anycast_prefix",
		IsOfInstallation: true,
		Minimal:          `resource "sallyport_anycast_prefix" "it" { prefix = "198.51.100.0/24" }`,
		Full:             full("198.51.101.0/24"),
		Replaced:         full("198.51.101.0/25"),
		Lose:             lose("/v1/anycast/prefixes"),
	}
}

// anycastPeerCase is a router, with all that it takes.
func anycastPeerCase() acctest.Case {
	full := func(version, hops string) string {
		return `resource "sallyport_anycast_peer" "it" {
  name                = "full"
  place               = "region:nowhere"
  address             = "192.0.2.1"
  remote_as           = 64502
  local_as            = 64501
  role                = "peer"
  hops                = ` + hops + `
  max_prefixes        = 10
  prepend             = 1
  communities         = ["64500:3"]
  drain_communities   = ["64500:4"]
  no_export           = true
  bfd                 = { interval_ms = 200 }
  password_wo         = var.password
  password_wo_version = ` + version + `
}`
	}
	return acctest.Case{
		Resource:         "sallyport_anycast_peer",
		IsOfInstallation: true,
		Minimal: `resource "sallyport_anycast_peer" "it" {
  name      = "router"
  address   = "192.0.2.1"
  remote_as = 64502
  local_as  = 64501
}`,
		Full:      full("1", "1"),
		Replaced:  full("2", "1"),
		Lose:      lose("/v1/anycast/peers"),
		Variables: map[string]string{"password": "password-of-a-session"},
	}
}

// TestEdgesOfTheInstallation has messages for what only its owner may do, and for what is there already.
func TestEdgesOfTheInstallation(t *testing.T) {
	t.Parallel()
	acctest.Need(t)
	owner := acctest.StartControl(t, "--anycast-allow", "198.51.100.0/24")
	w := acctest.NewWorkspace(t, owner)
	w.Write(t, "main.tf", `
resource "sallyport_anycast_prefix" "it" { prefix = "203.0.113.0/24" }
`)
	w.Fails(t, []string{"203.0.113.0/24", "Cannot create the anycast prefix"}, "apply", "-auto-approve")
	router := `
resource "sallyport_anycast_peer" "it" {
  name        = "router"
  address     = "192.0.2.1"
  remote_as   = 64502
  local_as    = 64501
  password_wo = "password-of-a-session"
}
`
	w.Write(t, "main.tf", router)
	owner.Call(t, http.MethodPost, "/v1/anycast/peers",
		client.Object{"name": "router", "address": "192.0.2.9", "remote_as": 64502, "local_as": 64501})
	if said := w.Fails(t, []string{"Cannot create the router"}, "apply", "-auto-approve"); strings.Contains(said, "password-of-a-session") {
		t.Errorf("the message has the password: %s", said)
	}
	w.Fails(t, []string{`there is no router with this id`}, "import", "sallyport_anycast_peer.it", "00000000-0000-4000-8000-000000000000")
	w.Write(t, "main.tf", `resource "sallyport_edge" "it" { name = "eu-1" }`)
	w.Fails(t, []string{`there is no edge "eu-1", and no token for one`}, "import", "sallyport_edge.it", "eu-1")
	narrow, _ := owner.NewToken(t, "sockets:write")
	w.Set("SALLYPORT_TOKEN", narrow)
	w.Fails(t, []string{"a token with all scopes"}, "apply", "-auto-approve")
}
