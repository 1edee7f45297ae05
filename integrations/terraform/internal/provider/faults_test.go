package provider_test

import (
	"bufio"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sallyport/sallyport/integrations/terraform/internal/acctest"
	"github.com/sallyport/sallyport/integrations/terraform/internal/client"
)

const shop = `
resource "sallyport_socket" "it" {
  name = "shop"
}
`

// one makes an account and a workspace with a configuration.
func one(t *testing.T, configuration string) (*acctest.Account, *acctest.Workspace) {
	t.Helper()
	t.Parallel()
	account := acctest.Need(t).NewAccount(t)
	w := acctest.NewWorkspace(t, account)
	w.Write(t, "main.tf", configuration)
	return account, w
}

func sockets(t *testing.T, account *acctest.Account) int {
	t.Helper()
	items, _ := account.Call(t, http.MethodGet, "/v1/sockets", nil)["items"].([]any)
	return len(items)
}

func TestSettingsThatAreWrong(t *testing.T) {
	account, w := one(t, shop)
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := "https://" + closed.Addr().String()
	closed.Close()
	ended, id := account.NewToken(t, acctest.AllScopes...)
	account.CallLoggedIn(t, http.MethodDelete, "/v1/tokens/"+id, nil)
	narrow, _ := account.NewToken(t, "sockets:read")
	services := strings.Replace(account.Environment()["SALLYPORT_API"], "https://api.", "https://", 1)
	for _, wrong := range []struct {
		name, variable, value string
		words                 []string
	}{
		{"no token", "SALLYPORT_TOKEN", "", []string{"The provider has no token: make one with `sallyport token create`"}},
		{"a wrong token", "SALLYPORT_TOKEN", "spt_wrong", []string{"This API token is not known", "make a token with `sallyport token create`"}},
		{"a deleted token", "SALLYPORT_TOKEN", ended, []string{"it may have been deleted", "make a token with `sallyport token create`"}},
		{"half a token", "SALLYPORT_TOKEN", "spt_a b", []string{"The token has white space in it"}},
		{"no address", "SALLYPORT_API", "", []string{"does not know where the API is: set `api`, or SALLYPORT_API"}},
		{"a wrong address", "SALLYPORT_API", "http://api.localhost", []string{"is no address of the API: write https://HOST"}},
		{"an address with a path", "SALLYPORT_API", account.Environment()["SALLYPORT_API"] + "/v1", []string{"has more than a host and a port: write https://api.localhost"}},
		{"the address of services", "SALLYPORT_API", services, []string{"Services are at " + services + ", and not the API: check `api` (or SALLYPORT_API)"}},
		{"nobody there", "SALLYPORT_API", nobody, []string{"Control cannot be reached at " + nobody + ": nothing accepts connections there"}},
		{"an unknown authority", "SALLYPORT_CA", "", []string{"is of an authority that this machine does not trust", "name its root in `ca` (or SALLYPORT_CA)"}},
		{"a home that no shell has put in", "SALLYPORT_CA", "~/ca.pem", []string{"pathexpand(\"~/ca.pem\")"}},
		{"no file of authorities", "SALLYPORT_CA", "/nowhere.pem", []string{"The file of `ca` cannot be read"}},
		{"no organisation", "SALLYPORT_ORGANISATION", "nobody", []string{"This API token is for another organisation"}},
	} {
		before := account.Environment()[wrong.variable]
		w.Set(wrong.variable, wrong.value)
		w.Fails(t, wrong.words, "plan")
		w.Set(wrong.variable, before)
	}
	w.Set("SALLYPORT_TOKEN", narrow)
	w.Fails(t, []string{"sockets:write", "make a token with the scope by `sallyport token create`"}, "apply", "-auto-approve")
	w.Set("SALLYPORT_TOKEN", "")
	w.Write(t, "token", account.Token+"\n")
	w.Write(t, "provider.tf", "provider \"sallyport\" {\n  token_file = \"${path.module}/token\"\n}\n")
	w.Apply(t)
	w.Write(t, "provider.tf", "provider \"sallyport\" {\n  token = \"x\"\n  token_file = \"y\"\n}\n")
	w.Fails(t, []string{"`token` and `token_file`: leave one of them out"}, "plan")
	w.Write(t, "provider.tf", "resource \"terraform_data\" \"later\" {\n  input = \"x\"\n}\nprovider \"sallyport\" {\n  api = terraform_data.later.output\n}\n")
	w.Fails(t, []string{"The value of `api` is known only after another resource is applied"}, "plan")
}

func TestTokenThatEnds(t *testing.T) {
	account, w := one(t, shop)
	w.Apply(t)
	end := time.Now().Add(2 * time.Second)
	made := account.CallLoggedIn(t, http.MethodPost, "/v1/tokens",
		client.Object{"name": "short", "scopes": acctest.AllScopes, "expires_at": end.UTC().Format(time.RFC3339)})
	time.Sleep(time.Until(end.Add(time.Second)))
	w.Set("SALLYPORT_TOKEN", made["token"].(string))
	w.Fails(t, []string{"has expired", "make a token with `sallyport token create`, and put it into SALLYPORT_TOKEN"}, "plan")
	w.Set("SALLYPORT_TOKEN", account.Token)
	w.NoChanges(t) // the state is what it was
}

func TestOlderControl(t *testing.T) {
	account, w := one(t, `
resource "sallyport_policy" "it" {
  name     = "staff"
  document = jsonencode({ allow = [{ who = { anyone = true } }] })
}
`)
	proxy := account.NewProxy(t)
	w.Use(proxy)
	proxy.Add(acctest.Fault{Prefix: "/v1/policies", Status: http.StatusNotFound})
	words := []string{"/v1/policies", "is older than this provider (" + acctest.ProviderVersion + ")", "upgrade control, or use the provider of its release"}
	w.Fails(t, words, "apply", "-auto-approve")
	// What is in the state stays there: an old control is no reason to make things again.
	proxy.Clear()
	w.Apply(t)
	proxy.Add(acctest.Fault{Prefix: "/v1/policies", Status: http.StatusNotFound})
	w.Fails(t, words, "plan")
	proxy.Clear()
	w.NoChanges(t)
}

// TestLostAnswers loses the first answer of every kind of request: each thing is made, changed and deleted once.
func TestLostAnswers(t *testing.T) {
	configuration := func(name string) string {
		return `
resource "sallyport_socket" "it" { name = "` + name + `" }
resource "sallyport_tunnel" "it" {
  socket_id = sallyport_socket.it.id
  name      = "` + name + `"
}
resource "sallyport_origin" "it" {
  socket_id = sallyport_socket.it.id
  address   = "127.0.0.1:80"
}
resource "sallyport_policy" "it" {
  name     = "` + name + `"
  document = jsonencode({ allow = [{ who = { anyone = true } }] })
}
resource "sallyport_policy_attachment" "it" {
  policy_id = sallyport_policy.it.id
  socket_id = sallyport_socket.it.id
  force     = true
}
`
	}
	account, w := one(t, configuration("shop"))
	proxy := account.NewProxy(t)
	w.Use(proxy)
	posts := []string{"/v1/sockets", "/v1/sockets/", "/v1/policies", "/v1/policies/"}
	lose := func(method string, times int, prefixes ...string) {
		for _, prefix := range prefixes {
			proxy.Add(acctest.Fault{Method: method, Prefix: prefix, Times: times, IsLost: true})
		}
	}
	lose(http.MethodPost, 1, posts...)
	w.Apply(t)
	for _, list := range []string{"/v1/sockets", "/v1/policies", "/v1/sockets/shop/tunnels", "/v1/sockets/shop/origins"} {
		if items, _ := account.Call(t, http.MethodGet, list, nil)["items"].([]any); len(items) != 1 {
			t.Errorf("%s has %d items after a lost answer", list, len(items))
		}
	}
	if count := proxy.Count(http.MethodPost, "/v1/"); count != 9 {
		t.Errorf("5 creations with 4 lost answers are 9 requests, not %d", count)
	}
	lose(http.MethodGet, 2, "/v1/sockets/", "/v1/policies/")
	w.NoChanges(t)

	proxy.Clear()
	lose(http.MethodPatch, 1, "/v1/sockets/", "/v1/policies/")
	w.Write(t, "main.tf", configuration("shops"))
	w.Apply(t)
	w.NoChanges(t)

	proxy.Clear()
	lose(http.MethodDelete, 1, "/v1/sockets/", "/v1/policies/")
	lose(http.MethodPost, 1, "/v1/policies/")
	w.Must(t, "destroy", "-auto-approve", "-no-color")
	if count := sockets(t, account); count != 0 {
		t.Errorf("%d sockets are left", count)
	}
}

// TestControlThatIsBusy answers 503 and 429 first.
func TestControlThatIsBusy(t *testing.T) {
	account, w := one(t, shop)
	proxy := account.NewProxy(t)
	w.Use(proxy)
	proxy.Add(acctest.Fault{Method: http.MethodPost, Prefix: "/v1/sockets", Times: 1, Status: http.StatusServiceUnavailable, Header: map[string]string{"Retry-After": "1"}})
	proxy.Add(acctest.Fault{Method: http.MethodPost, Prefix: "/v1/sockets", Times: 1, Status: http.StatusTooManyRequests, Header: map[string]string{"Retry-After": "0"}})
	w.Apply(t)
	if sockets, posts := sockets(t, account), proxy.Count(http.MethodPost, "/v1/sockets"); sockets != 1 || posts != 3 {
		t.Errorf("there are %d sockets after %d requests", sockets, posts)
	}
}

// TestTwoApplies runs two applies with one state, and two with the same object.
func TestTwoApplies(t *testing.T) {
	account, w := one(t, shop)
	proxy := account.NewProxy(t)
	w.Use(proxy)
	arrived, goOn := make(chan struct{}), make(chan struct{})
	proxy.Add(acctest.Fault{Method: http.MethodPost, Prefix: "/v1/sockets", Times: 1, Before: func(string) { close(arrived); <-goOn }})
	first := w.Command("apply", "-auto-approve", "-no-color")
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	<-arrived
	w.Fails(t, []string{"Error acquiring the state lock"}, "apply", "-auto-approve")
	close(goOn)
	if err := first.Wait(); err != nil {
		t.Fatalf("the first apply: %v", err)
	}
	if count := sockets(t, account); count != 1 {
		t.Errorf("two applies made %d sockets", count)
	}

	// Somebody else changes the socket after the plan: nothing is overwritten.
	id, _ := w.Attributes(t, "sallyport_socket.it")["id"].(string)
	elsewhere := func(affinity string) {
		account.Call(t, http.MethodPatch, "/v1/sockets/"+id, client.Object{"affinity": affinity})
	}
	w.Write(t, "main.tf", strings.Replace(shop, `"shop"`, `"shops"`, 1))
	w.Plan(t)
	elsewhere("cookie")
	w.Fails(t, []string{"Affinity changed elsewhere since the plan was made, and nothing was done: plan again"}, "apply", "it.plan")

	// Also where the other change comes between the read and the change of an apply.
	w.Plan(t)
	proxy.Add(acctest.Fault{Method: http.MethodPatch, Prefix: "/v1/sockets/", Times: 1, Before: func(string) { elsewhere("address") }})
	w.Fails(t, []string{"Affinity changed elsewhere since the plan was made, and nothing was done: plan again"}, "apply", "it.plan")
	found := account.Call(t, http.MethodGet, "/v1/sockets/"+id, nil)
	if found["name"] != "shop" || found["affinity"] != "address" {
		t.Errorf("the socket has become %v with %v", found["name"], found["affinity"])
	}

	// A change of something else, such as a policy elsewhere, is no obstacle.
	proxy.Add(acctest.Fault{Method: http.MethodPatch, Prefix: "/v1/sockets/", Times: 1, Before: func(string) {
		account.Call(t, http.MethodPost, "/v1/policies", client.Object{"name": "all", "document": client.Object{"allow": []any{client.Object{"who": client.Object{"anyone": true}}}}})
		account.Call(t, http.MethodPost, "/v1/policies/all/attach", client.Object{"socket": id, "force": true})
	}})
	w.Apply(t)
	w.NoChanges(t)
}

// TestInterruptedApply interrupts an apply while control makes a socket: the state has the socket.
func TestInterruptedApply(t *testing.T) {
	account, w := one(t, shop)
	proxy := account.NewProxy(t)
	w.Use(proxy)
	arrived, goOn := make(chan struct{}), make(chan struct{})
	proxy.Add(acctest.Fault{Method: http.MethodPost, Prefix: "/v1/sockets", Times: 1, Before: func(string) { close(arrived); <-goOn }})
	apply := w.Command("apply", "-auto-approve", "-no-color")
	output, err := apply.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := apply.Start(); err != nil {
		t.Fatal(err)
	}
	<-arrived
	if err := apply.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(output)
	for lines.Scan() && !strings.Contains(lines.Text(), "Gracefully shutting down") {
	}
	close(goOn)
	for lines.Scan() {
	}
	_ = apply.Wait() // an interrupted apply may say that it failed
	if count := sockets(t, account); count != 1 {
		t.Errorf("there are %d sockets", count)
	}
	w.NoChanges(t)
}

func TestImportsOfNothing(t *testing.T) {
	account, w := one(t, `
resource "sallyport_socket" "it" { name = "shop" }
resource "sallyport_tunnel" "it" { socket_id = sallyport_socket.it.id }
resource "sallyport_policy_attachment" "it" {
  policy_id  = "00000000-0000-4000-8000-000000000000"
  everywhere = true
}
`)
	nothing := "00000000-0000-4000-8000-000000000000"
	w.Fails(t, []string{`Control says of "` + nothing + `": there is no such socket.`}, "import", "sallyport_socket.it", nothing)
	w.Fails(t, []string{"there is no such"}, "import", "sallyport_tunnel.it", nothing+"/"+nothing)
	w.Fails(t, []string{`"x" is no id for the import of sallyport_tunnel: write SOCKET_ID/ID.`}, "import", "sallyport_tunnel.it", "x")
	w.Fails(t, []string{"write POLICY_ID/PLACE."}, "import", "sallyport_policy_attachment.it", "x/")
	// A name will do, too.
	made := account.Call(t, http.MethodPost, "/v1/sockets", client.Object{"name": "shop"})
	w.Must(t, "import", "sallyport_socket.it", "shop")
	if id := w.Attributes(t, "sallyport_socket.it")["id"]; id != made["id"] {
		t.Errorf("the import took %v", id)
	}
	// What is there already is not made again, and the message says what to do.
	w.Must(t, "state", "rm", "sallyport_socket.it")
	w.Fails(t, []string{"names are unique in an organisation", "`terraform import`"}, "apply", "-auto-approve", "-target", "sallyport_socket.it")
}

func TestStateOfANewerProvider(t *testing.T) {
	_, w := one(t, shop)
	w.Apply(t)
	state := w.Read(t, "terraform.tfstate")
	newer := strings.Replace(state, `"schema_version": 0`, `"schema_version": 7`, 1)
	if newer == state {
		t.Fatal("the state has no schema_version")
	}
	w.Write(t, "terraform.tfstate", newer)
	w.Fails(t, []string{"Resource instance managed by newer provider version"}, "plan")
	if w.Read(t, "terraform.tfstate") != newer {
		t.Error("the state has changed")
	}
	w.Write(t, "terraform.tfstate", state)
	w.NoChanges(t)
}

// TestPolicyThatIsAttached is not deleted beneath a socket, and the message says in which order to do it.
func TestPolicyThatIsAttached(t *testing.T) {
	staff := `
resource "sallyport_policy" "staff" {
  name     = "staff"
  document = jsonencode({ allow = [{ who = { anyone = true } }] })
}
`
	_, w := one(t, staff+`
resource "sallyport_socket" "it" {
  name     = "shop"
  policies = [sallyport_policy.staff.name]
}
`)
	w.Apply(t)
	without := `
resource "sallyport_socket" "it" {
  name     = "shop"
  policies = []
  force    = true
}
`
	w.Write(t, "main.tf", without)
	w.Fails(t, []string{"The policy is attached to 1 socket", "give it `lifecycle { create_before_destroy = true }` beforehand"}, "apply", "-auto-approve")
	w.Write(t, "main.tf", staff+without)
	w.Apply(t)
	w.Write(t, "main.tf", without)
	w.Apply(t)
	w.NoChanges(t)
}

func TestMistakesInConfigurations(t *testing.T) {
	_, w := one(t, "")
	for _, mistake := range []struct{ configuration, words string }{
		{`resource "sallyport_socket" "it" { 
  name = "x" 
  type = "ftp"
}`, `value must be one of`},
		{`resource "sallyport_socket" "it" {
  name = "x"
  regions = { eu = { capacity = { max_rps = "many" } } }
}`, `"many" is neither a whole number from 1 to 1000000 nor auto.`},
		{`resource "sallyport_policy" "it" {
  name = "x"
  document = "[1]"
}`, `it is no JSON object`},
		{`resource "sallyport_policy" "it" {
  name = "X"
  document = "{}"
}`, `the name of a policy has 1 to 64 lower-case letters`},
		{`resource "sallyport_policy_attachment" "it" {
  policy_id = "00000000-0000-4000-8000-000000000000"
}`, "An attachment has either `socket_id` or `everywhere = true`."},
		// The API would take the name, and answer with the id.
		{`resource "sallyport_tunnel" "it" {
  socket_id = "shop"
}`, "\"shop\" is no id of a socket: write `sallyport_socket.NAME.id`"},
		{`resource "sallyport_policy_attachment" "it" {
  policy_id  = "staff"
  everywhere = true
}`, "\"staff\" is no id of a policy: write `sallyport_policy.NAME.id`"},
		{`resource "sallyport_origin" "it" {
  socket_id = "shop"
  address   = "192.0.2.1:80"
}`, "\"shop\" is no id of a socket"},
	} {
		w.Write(t, "main.tf", mistake.configuration)
		w.Fails(t, []string{mistake.words}, "validate")
	}
	w.Write(t, "main.tf", `resource "sallyport_socket" "it" {
  name   = "x"
  access = { allow = ["192.0.2.5/24"] }
}`)
	w.Fails(t, []string{`"192.0.2.5/24" has address bits after its prefix: write 192.0.2.0/24 for that network.`, "on main.tf line 3"}, "apply", "-auto-approve")
	w.Write(t, "main.tf", `resource "sallyport_socket" "it" {
  name     = "x"
  policies = ["nobody"]
}`)
	w.Fails(t, []string{"`policies[0]`: there is no policy of this name.", "on main.tf line 3"}, "apply", "-auto-approve")
	w.Write(t, "main.tf", `resource "sallyport_identity_provider" "it" {
  name      = "google"
  kind      = "google"
  client_id = "x"
}`)
	w.Fails(t, []string{"`client_secret_wo`: the client secret that the provider gave is needed."}, "apply", "-auto-approve")
}
