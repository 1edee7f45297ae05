package acctest

import (
	"context"
	"fmt"
	"net/http"
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
	account := &Account{
		Server:   s,
		Email:    fmt.Sprintf("owner-%d@example.com", accounts.Add(1)),
		Password: "pass phrase of a test",
	}
	account.call(t, "", http.MethodPost, "/v1/accounts", client.Object{"name": "Owner", "email": account.Email, "password": account.Password})
	session := account.call(t, "", http.MethodPost, "/v1/login", client.Object{"email": account.Email, "password": account.Password})
	account.Session = session["access_token"].(string)
	account.Token, account.TokenID = account.NewToken(t, AllScopes...)
	return account
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
