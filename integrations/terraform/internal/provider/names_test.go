package provider_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/integrations/terraform/internal/acctest"
)

// ofAccount makes a DNS name that no other account of the tests has.
func ofAccount(account *acctest.Account) string {
	return strings.ReplaceAll(account.Email, "@", ".") // owner-7.example.com
}

func byName(attributes map[string]any) string { return attributes["name"].(string) }

func domainCase() acctest.Case {
	return acctest.Case{
		Resource: "sallyport_domain",
		Prepare: func(_ *testing.T, account *acctest.Account) map[string]string {
			return map[string]string{"NAME": ofAccount(account)}
		},
		Minimal:  `resource "sallyport_domain" "it" { name = "App.{NAME}" }`,
		Full:     `resource "sallyport_domain" "it" { name = "*.{NAME}" }`,
		Replaced: `resource "sallyport_domain" "it" { name = "www.{NAME}" }`,
		ImportID: byName,
		Lose: func(t *testing.T, account *acctest.Account, attributes map[string]any) {
			account.Call(t, http.MethodDelete, "/v1/domains/"+byName(attributes), nil)
		},
	}
}

func zoneCase() acctest.Case {
	return acctest.Case{
		Resource: "sallyport_zone",
		Prepare: func(t *testing.T, account *acctest.Account) map[string]string {
			return map[string]string{"NAME": account.Verify(t, ofAccount(account))}
		},
		Minimal: `resource "sallyport_zone" "it" { name = "{NAME}" }`,
		Full: `resource "sallyport_zone" "it" {
  name       = "{NAME}"
  algorithm  = "ed25519"
  signed     = true
  split_keys = true
}`,
		Replaced: `resource "sallyport_zone" "it" {
  name   = "{NAME}"
  signed = false
}`,
		ImportID: byName,
		Lose: func(t *testing.T, account *acctest.Account, attributes map[string]any) {
			account.Call(t, http.MethodDelete, "/v1/zones/"+byName(attributes), nil)
		},
	}
}

func zoneRecordCase() acctest.Case {
	record := func(name, kind, value, more string) string {
		return fmt.Sprintf(`
resource "sallyport_zone_record" "it" {
  zone  = sallyport_zone.own.name
  name  = %q
  type  = %q
  value = %s
  %s
}
`, name, kind, value, more)
	}
	return acctest.Case{
		Resource: "sallyport_zone_record",
		Prepare: func(t *testing.T, account *acctest.Account) map[string]string {
			return map[string]string{"NAME": account.Verify(t, ofAccount(account))}
		},
		Others:   `resource "sallyport_zone" "own" { name = "{NAME}" }`,
		Minimal:  record("www", "A", `"192.0.2.7"`, ""),
		Full:     record("@", "TXT", `"\"v=spf1  -all\" \"Second Text\""`, "ttl = 600"),
		Replaced: record("@", "TXT", `"\"v=spf1 ~all\""`, "ttl = 600"),
		ImportID: func(attributes map[string]any) string {
			return fmt.Sprintf("%s/%s", attributes["zone"], attributes["id"])
		},
		Lose: func(t *testing.T, account *acctest.Account, attributes map[string]any) {
			account.Call(t, http.MethodDelete, fmt.Sprintf("/v1/zones/%s/records/%s", attributes["zone"], attributes["id"]), nil)
		},
	}
}
