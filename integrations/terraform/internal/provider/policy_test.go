package provider_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/sallyport/sallyport/integrations/terraform/internal/acctest"
	"github.com/sallyport/sallyport/integrations/terraform/internal/client"
)

const fullDocument = `{
    allow = [{
      name  = "office hours"
      who   = { emails = ["Ann@Example.com"], email_domains = ["Example.com"], groups = ["Staff"] }
      where = ["192.0.2.0/24", "2001:DB8::1"]
      when  = { time_zone = "Europe/Zurich", not_before = "2026-01-01T00:00:00+01:00", weekly = [{ days = ["mon", "tue"], from = "08:00", to = "18:00" }] }
      what  = { methods = ["get"], paths = ["/app/**"] }
    }]
    deny = []
  }`

func policyCase() acctest.Case {
	full := func(name, document string) string {
		return `
resource "sallyport_policy" "it" {
  name     = "` + name + `"
  labels   = { team = "web" }
  document = jsonencode(` + document + `)
}
`
	}
	return acctest.Case{
		Resource: "sallyport_policy",
		Minimal: `resource "sallyport_policy" "it" {
  name     = "staff"
  document = "{\"deny\": [ {\"where\": [\"192.0.2.0/24\"]} ]}"
}`,
		Full:      full("staff", fullDocument),
		Changed:   full("people", `{ allow = [{ who = { anyone = true } }] }`),
		Differing: []string{"name", "document"},
		Words:     []string{"document"},
		Elsewhere: func(t *testing.T, account *acctest.Account, attributes map[string]any) {
			rules := client.Object{"deny": []any{client.Object{"where": []any{"198.51.100.0/24"}}}}
			account.Call(t, http.MethodPatch, "/v1/policies/"+attributes["id"].(string), client.Object{"document": rules})
		},
		Drift: []string{"document"},
		Lose: func(t *testing.T, account *acctest.Account, attributes map[string]any) {
			account.Call(t, http.MethodDelete, "/v1/policies/"+attributes["id"].(string), nil)
		},
	}
}

const attachmentOthers = `
resource "sallyport_socket" "shop" {
  name     = "attached"
  identity = { email_domains = ["example.com"] }
}
resource "sallyport_socket" "other" {
  name     = "attached too"
  identity = { email_domains = ["example.com"] }
}
resource "sallyport_policy" "staff" {
  name     = "staff"
  document = jsonencode({ allow = [{ who = { email_domains = ["example.com"] } }] })
}
`

func detach(place string) func(*testing.T, *acctest.Account, map[string]any) {
	return func(t *testing.T, account *acctest.Account, attributes map[string]any) {
		account.Call(t, http.MethodPost, fmt.Sprintf("/v1/policies/%s/detach", attributes["policy_id"]),
			client.Object{place: attributes[place+"_id"], "force": true})
	}
}

func policyAttachmentCase() acctest.Case {
	attached := func(socket string, force bool) string {
		return fmt.Sprintf(`
resource "sallyport_policy_attachment" "it" {
  policy_id = sallyport_policy.staff.id
  socket_id = sallyport_socket.%s.id
  force     = %t
}
`, socket, force)
	}
	return acctest.Case{
		Resource: "sallyport_policy_attachment",
		Others:   attachmentOthers,
		Minimal: `resource "sallyport_policy_attachment" "it" {
  policy_id = sallyport_policy.staff.id
  socket_id = sallyport_socket.shop.id
}`,
		Full:          attached("shop", true),
		Changed:       attached("shop", false),
		Differing:     []string{"force"},
		Replaced:      attached("other", true),
		ImportDiffers: []string{"force"},
		Lose:          detach("socket"),
	}
}

func policyEverywhereCase() acctest.Case {
	attached := `
resource "sallyport_policy_attachment" "it" {
  policy_id  = sallyport_policy.staff.id
  everywhere = true
}
`
	return acctest.Case{
		Resource: "sallyport_policy_attachment",
		Name:     "-everywhere",
		Others:   attachmentOthers,
		Minimal:  attached,
		Full:     attached,
		Lose: func(t *testing.T, account *acctest.Account, attributes map[string]any) {
			account.Call(t, http.MethodPost, fmt.Sprintf("/v1/policies/%s/detach", attributes["policy_id"]), client.Object{"everywhere": true, "force": true})
		},
	}
}
