package provider_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/sallyport/sallyport/integrations/terraform/internal/acctest"
	"github.com/sallyport/sallyport/integrations/terraform/internal/client"
)

func domainCase() acctest.Case {
	named := func(name string) string {
		return fmt.Sprintf("resource \"sallyport_domain\" \"it\" { name = %q }\n", name)
	}
	return acctest.Case{
		Resource: "sallyport_domain",
		Minimal:  named("app.domains.example.net"),
		Full:     named("*.Wild.Domains.example.net"),
		Replaced: named("other.domains.example.net"),
		Words:    []string{"name"},
		ImportID: attribute("name"),
		Lose:     byPath(http.MethodDelete, "/v1/domains", "name", nil),
	}
}

// verified makes a domain of the account that control has verified.
func verified(name string) func(*testing.T, *acctest.Account) map[string]string {
	return func(t *testing.T, account *acctest.Account) map[string]string {
		t.Helper()
		made := account.Call(t, http.MethodPost, "/v1/domains", client.Object{"name": name})
		for _, item := range made["records"].([]any) {
			if record := item.(map[string]any); record["type"] == "TXT" {
				account.Names.SetText(record["name"].(string), record["value"].(string))
			}
		}
		if now := account.Call(t, http.MethodPost, "/v1/domains/"+name+"/check", nil); now["state"] != "verified" {
			t.Fatalf("the domain is not verified: %v", now)
		}
		return map[string]string{"ZONE": name}
	}
}

func zoneCase() acctest.Case {
	return acctest.Case{
		Resource: "sallyport_zone",
		Prepare:  verified("zones.example.net"),
		Minimal:  `resource "sallyport_zone" "it" { name = "{ZONE}" }`,
		Full: `resource "sallyport_zone" "it" {
  name       = "Zones.Example.net"
  algorithm  = "ed25519"
  split_keys = true
  signed     = true
}`,
		Replaced: `resource "sallyport_zone" "it" {
  name   = "{ZONE}"
  signed = false
}`,
		Words:    []string{"name"},
		ImportID: attribute("name"),
		Lose:     byPath(http.MethodDelete, "/v1/zones", "name", nil),
	}
}

func recordCase(suffix, zone, minimal, full, replaced string, words ...string) acctest.Case {
	record := func(fields string) string {
		return "resource \"sallyport_zone_record\" \"it\" {\n  zone = sallyport_zone.here.name\n" + fields + "\n}\n"
	}
	c := acctest.Case{
		Resource: "sallyport_zone_record",
		Name:     suffix,
		Prepare:  verified(zone),
		Others:   `resource "sallyport_zone" "here" { name = "{ZONE}" }`,
		Minimal:  record(minimal),
		Full:     record(full),
		ImportID: func(attributes map[string]any) string {
			return fmt.Sprintf("%s/%s", attributes["zone"], attributes["id"])
		},
		Words: words,
		Lose:  byPath(http.MethodDelete, "/v1/zones/"+zone+"/records", "id", nil),
	}
	if replaced != "" {
		c.Replaced = record(replaced)
	}
	return c
}

func zoneRecordCase() acctest.Case {
	return recordCase("", "records.example.net",
		"name = \"@\"\n  type = \"A\"\n  value = \"192.0.2.7\"",
		"name = \"www\"\n  type = \"AAAA\"\n  ttl = 60\n  value = \"2001:db8::7\"",
		"name = \"www\"\n  type = \"AAAA\"\n  ttl = 90\n  value = \"2001:db8::7\"")
}

func zoneRecordTextCase() acctest.Case {
	c := recordCase("-words", "texts.example.net",
		"name = \"WWW.texts.example.net.\"\n  type = \"mx\"\n  value = \"10 Mail\"",
		"name = \"_info\"\n  type = \"TXT\"\n  value = \"\\\"two  words\\\" three\"", "")
	c.ImportDiffers = []string{"value"} // control writes texts in its own way, and a record cannot change
	return c
}
