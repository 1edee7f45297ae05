package provider

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/ephemeral/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sallyport/sallyport/integrations/terraform/internal/client"
	"github.com/sallyport/sallyport/integrations/terraform/internal/rest"
)

const (
	defaultMinutes = 60
	defaultDays    = 1
)

// opened says what all ephemeral resources that make something have in common.
const opened = " Terraform opens it in every run, in a plan and again in the apply."

func shown(description string) schema.StringAttribute {
	return schema.StringAttribute{Computed: true, MarkdownDescription: description}
}

func shownSecret(description string) schema.StringAttribute {
	return schema.StringAttribute{Computed: true, Sensitive: true, MarkdownDescription: description}
}

func orNumber(value any, otherwise int64) int64 {
	if number, ok := value.(int64); ok {
		return number
	}
	return otherwise
}

// accessToken is the ephemeral resource sallyport_access_token.
var accessToken = rest.Secret{
	Name: "access_token", Noun: "API token",
	Schema: schema.Schema{
		MarkdownDescription: "An API token for this run." + opened + " Each run has a token of its own, which ends with the run: Terraform closes it, and the token is deleted. With `keep = true` the token stays until its time is over, for a machine that gets it; then plans leave tokens behind too, for that time.",
		Attributes: map[string]schema.Attribute{
			"name":       schema.StringAttribute{Optional: true, MarkdownDescription: "The purpose of the token; `terraform` when absent."},
			"scopes":     schema.SetAttribute{Required: true, ElementType: types.StringType, MarkdownDescription: "What the token may do, such as `sockets:write` or `tunnels:connect`; at most what the provider's token may."},
			"minutes":    schema.Int64Attribute{Optional: true, MarkdownDescription: "How long the token is good, at most; `60` when absent."},
			"keep":       schema.BoolAttribute{Optional: true, MarkdownDescription: "Whether the token outlives the run; `false` when absent."},
			"id":         shown("The id of the token."),
			"expires_at": shown("When the token ends."),
			"token":      shownSecret("The token, for `SALLYPORT_TOKEN`."),
		},
	},
	Open: func(ctx context.Context, api *client.Client, written rest.Object) (rest.Object, string, error) {
		minutes := orNumber(written["minutes"], defaultMinutes)
		if minutes < 1 {
			return nil, "", fmt.Errorf("`minutes` is %d: write 1 or more", minutes)
		}
		name, ok := written["name"].(string)
		if !ok {
			name = "terraform"
		}
		end := time.Now().Add(time.Duration(minutes) * time.Minute).UTC().Truncate(time.Second)
		made := rest.Object{}
		body := rest.Object{"name": name, "scopes": written["scopes"], "expires_at": end.Format(time.RFC3339)}
		if _, err := create(ctx, api, "/v1/tokens", body, made); err != nil {
			return nil, "", err
		}
		if written["keep"] == true {
			return made, "", nil
		}
		return made, fmt.Sprintf("/v1/tokens/%s", made["id"]), nil
	},
}

// create makes what has a secret. Where the answer was lost, its secret is lost with it, and another one takes its place.
func create(ctx context.Context, api *client.Client, path string, body, made rest.Object) (*client.Answer, error) {
	answer, err := api.Create(ctx, path, body, &made)
	if problem := client.AsProblem(err); client.HasCode(err, "secret-already-shown") {
		if problem.Location != "" {
			if _, err := api.Do(ctx, http.MethodDelete, problem.Location, nil, nil); err != nil {
				return nil, err
			}
		}
		answer, err = api.Create(ctx, path, body, &made)
	}
	return answer, err
}

// edgeToken is the ephemeral resource sallyport_edge_token.
var edgeToken = rest.Secret{
	Name: "edge_token", Noun: "token of the edge",
	Schema: schema.Schema{
		MarkdownDescription: "A token with which one edge joins, under one name." + opened + " Every one is another token, good once and for its time: a machine joins after the run, so that Terraform deletes none, and a token that no machine got ends by itself. To have one token in the run that makes a machine, and none in others, use the resource `sallyport_edge` and `sallyport_initial_secret`. The provider's token is one of the account that owns the installation.",
		Attributes: map[string]schema.Attribute{
			"name":       schema.StringAttribute{Required: true, MarkdownDescription: "The name of the edge. Nobody joins by the token under another one."},
			"region":     schema.StringAttribute{Optional: true, MarkdownDescription: "The region of the edge; its machine says it when absent."},
			"minutes":    schema.Int64Attribute{Optional: true, MarkdownDescription: "How long the token is good, at most 10080; `60` when absent."},
			"expires_at": shown("When the token ends."),
			"token":      shownSecret("The token, for `token` of `cloud_init_edge` or `sallyport edge --join`."),
		},
	},
	Open: func(ctx context.Context, api *client.Client, written rest.Object) (rest.Object, string, error) {
		body := rest.Object{"name": written["name"], "minutes": orNumber(written["minutes"], defaultMinutes)}
		if written["region"] != nil {
			body["region"] = written["region"]
		}
		made := rest.Object{}
		_, err := create(ctx, api, "/v1/edge-tokens", body, made)
		return made, "", err
	},
}

// tunnelCredential is the ephemeral resource sallyport_tunnel_credential.
var tunnelCredential = rest.Secret{
	Name: "tunnel_credential", Noun: "credential of the tunnel",
	Schema: schema.Schema{
		MarkdownDescription: "The credential with which a connector holds a tunnel. In the run that makes the tunnel, it is the one that control showed then. In other runs it is null, since control shows a credential once: so a plan ends no credential that a machine uses. With `rotate = true`, every run makes another credential, a plan too, and the former one is no longer good: set it by a variable, for the run that gives the machine its new credential.",
		Attributes: map[string]schema.Attribute{
			"socket_id":  schema.StringAttribute{Required: true, MarkdownDescription: "The id of the socket."},
			"tunnel_id":  schema.StringAttribute{Required: true, MarkdownDescription: "The id of the tunnel."},
			"rotate":     schema.BoolAttribute{Optional: true, MarkdownDescription: "Whether to make another credential; `false` when absent."},
			"credential": shownSecret("The credential, for `tunnel-credential` of `sallyport run`; null where this run made none."),
		},
	},
	Open: func(ctx context.Context, api *client.Client, written rest.Object) (rest.Object, string, error) {
		id := fmt.Sprint(written["tunnel_id"])
		if written["rotate"] != true {
			if kept, ok := api.Kept(id); ok {
				return rest.Object{"credential": kept}, "", nil
			}
			return rest.Object{}, "", nil
		}
		made := rest.Object{}
		path := fmt.Sprintf("/v1/sockets/%s/tunnels/%s/credential", url.PathEscape(fmt.Sprint(written["socket_id"])), url.PathEscape(id))
		_, err := api.Create(ctx, path, nil, &made)
		return made, "", err
	},
}

// serviceTokenCertificate is the ephemeral resource sallyport_service_token_certificate.
var serviceTokenCertificate = rest.Secret{
	Name: "service_token_certificate", Noun: "certificate of the service token",
	Schema: schema.Schema{
		MarkdownDescription: "A client certificate of a service token, with a key of its own that never leaves this machine but by what uses it." + opened + " Every one is another certificate. It ends after `days`, or with the token; earlier certificates stay good, and none can be deleted by itself.",
		Attributes: map[string]schema.Attribute{
			"service_token_id": schema.StringAttribute{Required: true, MarkdownDescription: "The id of the service token."},
			"days":             schema.Int64Attribute{Optional: true, MarkdownDescription: "The lifetime in days; `1` when absent."},
			"certificate":      shown("The certificate in PEM."),
			"authority":        shown("The certificate in PEM of the authority that signed it."),
			"serial":           shown("The serial number, in hexadecimal digits."),
			"valid_until":      shown("When the certificate ends."),
			"private_key":      shownSecret("The private key in PEM (PKCS #8)."),
		},
	},
	Open: func(ctx context.Context, api *client.Client, written rest.Object) (rest.Object, string, error) {
		key, request, err := newKey()
		if err != nil {
			return nil, "", errors.New("this machine could not make a key")
		}
		made := rest.Object{}
		path := fmt.Sprintf("/v1/service-tokens/%s/certificate", url.PathEscape(fmt.Sprint(written["service_token_id"])))
		_, err = api.Create(ctx, path, rest.Object{"csr": request, "days": orNumber(written["days"], defaultDays)}, &made)
		made["private_key"] = key
		return made, "", err
	},
}

// newKey returns a new key and a certificate request for it, both in PEM.
func newKey() (key, request string, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", "", err
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return "", "", err
	}
	asked, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, private)
	if err != nil {
		return "", "", err
	}
	key = string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded}))
	request = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: asked}))
	return key, request, nil
}
