package provider

import (
	"context"
	"fmt"
	"net/http"

	"github.com/hashicorp/terraform-plugin-framework/ephemeral/schema"

	"github.com/sallyport/sallyport/integrations/terraform/internal/client"
	"github.com/sallyport/sallyport/integrations/terraform/internal/rest"
)

// defaultMinutes is how long a token is good.
const defaultMinutes = 60

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
		MarkdownDescription: "The credential with which a connector holds a tunnel that another configuration or program made: with `rotate = true`, every run makes another credential, a plan too, and the former one is no longer good. So set `rotate` by a variable, for the run that gives the machine its new credential. Without it, the credential is null, apart from the run that makes the tunnel. For a tunnel of the same configuration, take `sallyport_initial_secret`, and raise `credential_version` of the tunnel.",
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
		credential, err := rotate(ctx, api, fmt.Sprint(written["socket_id"]), id)
		return rest.Object{"credential": credential}, "", err
	},
}
