package provider_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/sallyport/sallyport/integrations/terraform/internal/acctest"
	"github.com/sallyport/sallyport/integrations/terraform/internal/client"
)

func socketCase() acctest.Case {
	return acctest.Case{
		Resource: "sallyport_socket",
		Minimal: `resource "sallyport_socket" "it" {
  name  = "shop"
  force = true # without it, control refuses to remove the password
}`,
		Full:      socketFull("first", "1", "The shop", "the-shop"),
		Changed:   socketFull("second", "2", "The other shop", "the-shop"),
		Differing: []string{"name", "protected"},
		Replaced:  socketFull("first", "1", "The shop", "the-other"),
		Elsewhere: func(t *testing.T, account *acctest.Account, attributes map[string]any) {
			account.Call(t, http.MethodPatch, "/v1/sockets/"+attributes["id"].(string), client.Object{"affinity": "none", "limits": client.Object{"max_connections": 7}})
		},
		Drift: []string{"affinity", "limits"},
		Lose: func(t *testing.T, account *acctest.Account, attributes map[string]any) {
			account.Call(t, http.MethodDelete, "/v1/sockets/"+attributes["id"].(string), nil)
		},
		Variables: map[string]string{"first": "the first password", "second": "the second password"},
	}
}

func socketFull(password, version, name, label string) string {
	return `
resource "sallyport_socket" "it" {
  name   = "` + name + `"
  type   = "https"
  label  = "` + label + `"
  labels = { env = "prod", team = "web" }
  access = {
    allow = ["192.0.2.0/24", "127.0.0.0/8"]
    deny  = ["198.51.100.0/24"]
  }
  affinity            = "cookie"
  origin_protocol     = "http2"
  amplification_guard = true
  host_header         = "localhost:3000"
  headers = {
    request  = { remove = ["x-debug"], set = [{ name = "x-from", value = "edge" }, { name = "x-also", value = "1" }] }
    response = { set = [{ name = "x-served-by", value = "sallyport" }] }
  }
  health_check = {
    type                = "http"
    path                = "/healthz"
    status_from         = 200
    status_to           = 204
    interval_seconds    = 30
    timeout_seconds     = 5
    healthy_threshold   = 1
    unhealthy_threshold = 4
  }
  limits = {
    bytes_per_second    = 1048576
    max_connections     = 100
    requests_per_second = 50
    queue               = 20
  }
  protected = {
    username            = "ann"
    password_wo         = var.` + password + `
    password_wo_version = ` + version + `
  }
  regions = {
    eu = { dial = 80, capacity = { max_rps = "auto", max_connections = 10, shared = "all" } }
    us = { capacity = { max_rps = 100 } }
  }
}
`
}

// tlsSocketCase is a socket with a port of its own, which changes its type in place.
func tlsSocketCase() acctest.Case {
	full := func(more string) string {
		return `
resource "sallyport_socket" "it" {
  name           = "db"
  proxy_protocol = "v1"
  access         = { allow = ["2001:DB8::/32", "192.0.2.7"] }
  ` + more + `
}
`
	}
	return acctest.Case{
		Resource: "sallyport_socket",
		Name:     "-tls",
		Minimal: `resource "sallyport_socket" "it" { 
  name = "db"
  type = "tls"
}`,
		Full:      full("type = \"tls\"\n  alpn = [\"postgresql\", \"h2\"]\n  health_check = { type = \"tcp\" }"),
		Changed:   full("type = \"tcp\"\n  health_check = { type = \"tcp\", interval_seconds = 20 }"),
		Differing: []string{"type", "alpn", "health_check", "url"},
		Words:     []string{"access"},
		Replaced:  full("type = \"udp\"\n  port = 1"),
		Elsewhere: func(t *testing.T, account *acctest.Account, attributes map[string]any) {
			account.Call(t, http.MethodPatch, "/v1/sockets/"+attributes["id"].(string), client.Object{"health_check": nil, "labels": client.Object{"by": "hand"}})
		},
		Drift: []string{"health_check", "labels"},
	}
}

// identitySocketCase is a socket with a login and policies from its first moment on.
func identitySocketCase() acctest.Case {
	full := func(policies string) string {
		return `
resource "sallyport_policy" "one" {
  name     = "one"
  document = jsonencode({ allow = [{ who = { email_domains = ["example.com"] } }] })
  lifecycle { create_before_destroy = true } # deleted after the socket let go of it
}
resource "sallyport_policy" "two" {
  name     = "two"
  document = jsonencode({ allow = [{ who = { emails = ["Bob@example.org"] } }] })
  lifecycle { create_before_destroy = true }
}
resource "sallyport_socket" "it" {
  name     = "app"
  policies = ` + policies + `
  identity = {
    email_addresses      = ["Ann@Example.com"]
    email_domains        = ["Example.net"]
    session_minutes      = 60
    session_idle_minutes = 30
  }
}
`
	}
	return acctest.Case{
		Resource: "sallyport_socket",
		Name:     "-identity",
		Minimal: `resource "sallyport_socket" "it" {
  name     = "app"
  policies = []
  force    = true # without it, control refuses to open the socket
}`,
		Full:      full("[sallyport_policy.one.name]"),
		Changed:   full("[sallyport_policy.two.name]"),
		Differing: []string{"policies"},
		Words:     []string{"identity"},
		Elsewhere: func(t *testing.T, account *acctest.Account, attributes map[string]any) {
			account.Call(t, http.MethodPost, "/v1/policies/two/attach", client.Object{"socket": attributes["id"]})
		},
		Drift: []string{"policies"},
		Lose: func(t *testing.T, account *acctest.Account, attributes map[string]any) {
			account.Call(t, http.MethodDelete, "/v1/sockets/"+attributes["id"].(string), nil)
		},
	}
}

// TestPasswords sets passwords and asks the edge whether they are good. A new one is sent with a new version alone.
func TestPasswords(t *testing.T) {
	account, w := one(t, "")
	configuration := func(version int) string {
		return fmt.Sprintf(`
variable "password" {
  type      = string
  ephemeral = true
}
resource "sallyport_socket" "it" {
  name      = "admin"
  protected = {
    username            = "ann"
    password_wo         = var.password
    password_wo_version = %d
  }
}
`, version)
	}
	isGood := func(password string) bool {
		url := w.Attributes(t, "sallyport_socket.it")["url"].(string)
		return account.Visit(t, url, "ann", password) != http.StatusUnauthorized
	}
	apply := func(version int, password string) {
		w.Write(t, "main.tf", configuration(version))
		w.Set("TF_VAR_password", password)
		w.Apply(t)
	}
	apply(1, "one of them")
	if !isGood("one of them") || isGood("two of them") {
		t.Error("the first password is not set")
	}
	apply(1, "two of them")
	if !isGood("one of them") || isGood("two of them") {
		t.Error("without a new version the password changed")
	}
	apply(2, "two of them")
	if isGood("one of them") || !isGood("two of them") {
		t.Error("with a new version the password did not change")
	}
}

// TestLoginWithPoliciesAlone makes a socket whose login admits whom its policies allow.
func TestLoginWithPoliciesAlone(t *testing.T) {
	_, w := one(t, `
resource "sallyport_policy" "staff" {
  name     = "staff"
  document = jsonencode({ allow = [{ who = { email_domains = ["example.com"] } }] })
}
resource "sallyport_socket" "it" {
  name     = "intranet"
  identity = {}
  policies = [sallyport_policy.staff.name]
}
`)
	w.Apply(t)
	w.NoChanges(t)
	w.Must(t, "destroy", "-auto-approve") // the socket goes before its policy
}
