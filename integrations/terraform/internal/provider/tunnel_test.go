package provider_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/sallyport/sallyport/integrations/terraform/internal/acctest"
	"github.com/sallyport/sallyport/integrations/terraform/internal/client"
)

// nested makes the import id of what belongs to a socket, and its path.
func nested(attributes map[string]any) string {
	return fmt.Sprintf("%s/%s", attributes["socket_id"], attributes["id"])
}

func pathOf(attributes map[string]any, collection string) string {
	return fmt.Sprintf("/v1/sockets/%s/%s/%s", attributes["socket_id"], collection, attributes["id"])
}

func tunnelCase() acctest.Case {
	full := func(socket, weight, more string) string {
		return `
resource "sallyport_tunnel" "it" {
  socket_id    = sallyport_socket.` + socket + `.id
  name         = "web-1"
  labels       = { host = "web-1" }
  weight       = ` + weight + `
  path         = "/api/"
  rewrite_path = "/"
  ` + more + `
}
`
	}
	return acctest.Case{
		Resource: "sallyport_tunnel",
		Others: `
resource "sallyport_socket" "shop" { name = "tunnels" }
resource "sallyport_socket" "other" { name = "other" }
`,
		Minimal:   `resource "sallyport_tunnel" "it" { socket_id = sallyport_socket.shop.id }`,
		Full:      full("shop", "0", `capacity = { max_rps = "auto", max_connections = 5, shared = "machine" }`),
		Changed:   full("shop", "50", "credential_version = 2"),
		Differing: []string{"weight", "capacity", "credential_version"},
		Words:     []string{"path"},
		Replaced:  full("other", "50", ""),
		ImportID:  nested,
		Elsewhere: func(t *testing.T, account *acctest.Account, attributes map[string]any) {
			account.Call(t, http.MethodPatch, pathOf(attributes, "tunnels"), client.Object{"name": nil, "path": "/other"})
		},
		Drift: []string{"name", "path"},
		Lose: func(t *testing.T, account *acctest.Account, attributes map[string]any) {
			account.Call(t, http.MethodDelete, pathOf(attributes, "tunnels"), nil)
		},
		Secrets: []string{"spc_"},
	}
}

func originCase() acctest.Case {
	full := func(address, more string) string {
		return `
resource "sallyport_origin" "it" {
  socket_id    = sallyport_socket.shop.id
  address      = "` + address + `"
  region       = "eu"
  path         = "/api"
  rewrite_path = "/v2"
  ` + more + `
}
`
	}
	return acctest.Case{
		Resource: "sallyport_origin",
		Others: `
resource "sallyport_socket" "shop" {
  name = "origins"
  type = "https"
}
`,
		Minimal: `resource "sallyport_origin" "it" {
  socket_id = sallyport_socket.shop.id
  address   = "127.0.0.1:8080"
}`,
		Full:      full("LocalHost:8081", `tls = { server_name = "web.example.com", pin = "sha256:`+fmt.Sprintf("%064d", 7)+`" }`),
		Changed:   full("127.0.0.1:8082", "weight = 7\n  capacity = { max_rps = 100 }"),
		Differing: []string{"address", "tls", "weight", "capacity"},
		Words:     []string{"address"},
		ImportID:  nested,
		Elsewhere: func(t *testing.T, account *acctest.Account, attributes map[string]any) {
			account.Call(t, http.MethodPatch, pathOf(attributes, "origins"), client.Object{"region": nil, "weight": 3})
		},
		Drift: []string{"region", "weight"},
		Lose: func(t *testing.T, account *acctest.Account, attributes map[string]any) {
			account.Call(t, http.MethodDelete, pathOf(attributes, "origins"), nil)
		},
	}
}
