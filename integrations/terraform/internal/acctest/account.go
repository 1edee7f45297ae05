package acctest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"testing"

	"github.com/sallyport/sallyport/integrations/terraform/internal/client"
)

// Account is an account of a server, with an organisation of its own.
type Account struct {
	*Server
	Email, Password string
	// Token is an API token with all scopes, and TokenID its id.
	Token, TokenID string
	// Session is an access token of a login, which may do more than a token.
	Session string
}

// AllScopes are all that a token may do.
var AllScopes = []string{"account:write", "sockets:write", "identity:write", "audit:read", "organisation:write"}

var accounts atomic.Int64

// NewAccount makes an account. Tests have one each, so that they run side by side.
func (s *Server) NewAccount(t *testing.T) *Account {
	t.Helper()
	return s.NewAccountOf(t, fmt.Sprintf("owner-%d@example.com", accounts.Add(1)))
}

// NewAccountOf makes the account of an e-mail address.
func (s *Server) NewAccountOf(t *testing.T, email string) *Account {
	t.Helper()
	account := &Account{Server: s, Email: email, Password: "pass phrase of a test"}
	account.logIn(t, client.Object{})
	return account
}

// logIn makes the account, with more fields of the request, and its tokens.
func (a *Account) logIn(t *testing.T, body client.Object) {
	t.Helper()
	body["name"], body["email"], body["password"] = "Owner", a.Email, a.Password
	a.call(t, "", http.MethodPost, "/v1/accounts", body)
	session := a.call(t, "", http.MethodPost, "/v1/login", client.Object{"email": a.Email, "password": a.Password})
	a.Session = session["access_token"].(string)
	a.Token, a.TokenID = a.NewToken(t, AllScopes...)
}

// NewToken makes an API token.
func (a *Account) NewToken(t *testing.T, scopes ...string) (token, id string) {
	t.Helper()
	made := a.call(t, a.Session, http.MethodPost, "/v1/tokens", client.Object{"name": "test", "scopes": scopes})
	return made["token"].(string), made["id"].(string)
}

// Call calls the API as another program would, and returns the object of its answer. A problem fails the test.
func (a *Account) Call(t *testing.T, method, path string, body any) client.Object {
	t.Helper()
	return a.call(t, a.Token, method, path, body)
}

// CallLoggedIn calls the API with the token of a login.
func (a *Account) CallLoggedIn(t *testing.T, method, path string, body any) client.Object {
	t.Helper()
	return a.call(t, a.Session, method, path, body)
}

func (a *Account) call(t *testing.T, token, method, path string, body any) client.Object {
	t.Helper()
	api, err := client.New(client.Config{API: a.API, CA: a.CA, Token: token, Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	answer := client.Object{}
	var options []client.Option
	if method == http.MethodPost {
		options = append(options, client.IdempotencyKey(client.NewKey()))
	}
	if _, err := api.Do(context.Background(), method, path, body, &answer, options...); err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return answer
}

// Client returns a client of the API with the account's token.
func (a *Account) Client(t *testing.T) *client.Client {
	t.Helper()
	api, err := client.New(client.Config{API: a.API, CA: a.CA, Token: a.Token, Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	return api
}

// Environment is what a shell would have for the provider.
func (a *Account) Environment() map[string]string {
	return map[string]string{"SALLYPORT_API": a.API, "SALLYPORT_CA": a.CA, "SALLYPORT_TOKEN": a.Token}
}

// Visit requests an address of a socket as a client would, and returns the status.
func (a *Account) Visit(t *testing.T, address, user, password string) int {
	t.Helper()
	root, err := os.ReadFile(a.CA)
	if err != nil {
		t.Fatal(err)
	}
	trust := x509.NewCertPool()
	trust.AppendCertsFromPEM(root)
	// Names beneath localhost are this machine, whatever the resolver knows.
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		_, port, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		return (&net.Dialer{}).DialContext(ctx, network, "127.0.0.1:"+port)
	}
	transport := &http.Transport{DialContext: dial, TLSClientConfig: &tls.Config{RootCAs: trust}}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequest(http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	if user != "" {
		request.SetBasicAuth(user, password)
	}
	response, err := (&http.Client{Transport: transport, Timeout: patience}).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	return response.StatusCode
}
