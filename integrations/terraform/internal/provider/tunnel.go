package provider

import (
	"context"
	"fmt"
	"net/url"

	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/int64planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringdefault"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sallyport/sallyport/integrations/terraform/internal/client"
	"github.com/sallyport/sallyport/integrations/terraform/internal/rest"
)

// tunnel is the resource sallyport_tunnel.
func tunnel() *rest.Kind {
	return &rest.Kind{
		Name:       "tunnel",
		Noun:       "tunnel",
		Collection: "/v1/sockets/{socket_id}/tunnels",
		Import:     []string{"socket_id", "id"},
		HasETag:    true,
		Schema: schema.Schema{
			MarkdownDescription: "A tunnel: one origin's place at a socket, whether its connector is there or not. Its credential is not in the state: the ephemeral resource `sallyport_initial_secret` gives it in the run that makes the tunnel, and in a run that raises `credential_version`.",
			Attributes: map[string]schema.Attribute{
				"id":         stable("The id of the tunnel."),
				"created_at": stable("When the tunnel was made."),
				"forward_port": schema.Int64Attribute{
					Computed: true, MarkdownDescription: "The port that selects this tunnel for a stock ssh client: `ssh -R FORWARD_PORT:host:port`.",
					PlanModifiers: []planmodifier.Int64{int64planmodifier.UseStateForUnknown()},
				},
				"socket_id":          parentID("The id of the socket. Another socket makes a new tunnel.", "socket"),
				"name":               optional("The name of the tunnel, which no other tunnel of the organisation has: one line of 1 to 100 characters."),
				"labels":             labels(),
				"weight":             numberOr(100, "The tunnel's share of the socket's flows beside the others, up to 1000; 0 takes no new ones."),
				"path":               prefix("The paths of the socket that the tunnel serves: this one and everything beneath it (`http` and `https` sockets). Of several that fit, the longest takes the request."),
				"rewrite_path":       optional("The replacement of `path` in requests to the origin: `/` removes the prefix. The path stays as it is when absent."),
				"capacity":           capacity("What the origin can carry, from all edges together."),
				"credential_version": numberOr(1, "A number that changes with the credential: another version makes another credential, which `sallyport_initial_secret` gives in the same run. The former one is no longer good from then on."),
			},
		},
		Complete:   completeTunnel,
		ModifyPlan: warnOfRotation,
		Fields: map[string]rest.Field{
			"name":               {IsSame: sameTrimmed},
			"path":               {IsSame: samePrefix},
			"rewrite_path":       {IsSame: samePrefix},
			"capacity.max_rps":   {Encode: encodeRPS, Decode: decodeRPS},
			"credential_version": {Local: true, Initial: int64(1), IsLast: true},
		},
	}
}

// completeTunnel keeps the credential for `sallyport_initial_secret`: the first one, which only the answer to the
// creation has, or another one where the version has changed.
func completeTunnel(ctx context.Context, call *rest.Call, answer rest.Object) (rest.Object, error) {
	id, _ := answer["id"].(string)
	credential, _ := answer["credential"].(string)
	if before, ok := call.Prior["credential_version"]; ok && before != nil && before != call.Values["credential_version"] {
		made, err := rotate(ctx, call.Client, call.Text("socket_id"), id)
		if err != nil {
			return answer, fmt.Errorf("the credential is the former one, or one that nobody got: %w", err)
		}
		credential = made
	}
	call.Client.Keep(id, credential)
	return answer, nil
}

// rotate makes another credential of a tunnel. Where its answer was lost, another one takes its place.
func rotate(ctx context.Context, api *client.Client, socket, tunnel string) (string, error) {
	var made struct {
		Credential string `json:"credential"`
	}
	path := fmt.Sprintf("/v1/sockets/%s/tunnels/%s/credential", url.PathEscape(socket), url.PathEscape(tunnel))
	_, err := api.Create(ctx, path, nil, &made)
	if client.HasCode(err, "secret-already-shown") {
		_, err = api.Create(ctx, path, nil, &made)
	}
	return made.Credential, err
}

// warnOfRotation says what an apply ends.
func warnOfRotation(ctx context.Context, request resource.ModifyPlanRequest, response *resource.ModifyPlanResponse) {
	if request.State.Raw.IsNull() || request.Plan.Raw.IsNull() {
		return
	}
	where := path.Root("credential_version")
	var before, after types.Int64
	response.Diagnostics.Append(request.State.GetAttribute(ctx, where, &before)...)
	response.Diagnostics.Append(request.Plan.GetAttribute(ctx, where, &after)...)
	if !before.IsNull() && !before.Equal(after) {
		response.Diagnostics.AddAttributeWarning(where, "The tunnel gets another credential",
			"The present credential is no longer good after the apply: give the new one to the machine in the same run.")
	}
}

// prefix returns a prefix of paths; every path when absent.
func prefix(description string) schema.StringAttribute {
	return schema.StringAttribute{
		Optional: true, Computed: true, Default: stringdefault.StaticString("/"),
		MarkdownDescription: description + " `/`, every path, when absent.",
	}
}
