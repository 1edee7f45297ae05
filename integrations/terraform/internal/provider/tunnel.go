package provider

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/int64planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringdefault"

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
			MarkdownDescription: "A tunnel: one origin's place at a socket, whether its connector is there or not. Its credential is not in the state: the ephemeral resource `sallyport_initial_secret` gives it in the run that makes the tunnel, and `sallyport_tunnel_credential` another one when asked.",
			Attributes: map[string]schema.Attribute{
				"id":         stable("The id of the tunnel."),
				"created_at": stable("When the tunnel was made."),
				"forward_port": schema.Int64Attribute{
					Computed: true, MarkdownDescription: "The port that selects this tunnel for a stock ssh client: `ssh -R FORWARD_PORT:host:port`.",
					PlanModifiers: []planmodifier.Int64{int64planmodifier.UseStateForUnknown()},
				},
				"socket_id":    parentID("The id of the socket. Another socket makes a new tunnel.", "socket"),
				"name":         optional("The name of the tunnel, which no other tunnel of the organisation has: one line of 1 to 100 characters."),
				"labels":       labels(),
				"weight":       numberOr(100, "The tunnel's share of the socket's flows beside the others, up to 1000; 0 takes no new ones."),
				"path":         prefix("The paths of the socket that the tunnel serves: this one and everything beneath it (`http` and `https` sockets). Of several that fit, the longest takes the request."),
				"rewrite_path": optional("The replacement of `path` in requests to the origin: `/` removes the prefix. The path stays as it is when absent."),
				"capacity":     capacity("What the origin can carry, from all edges together."),
			},
		},
		// Only the answer to the creation has the credential, for `sallyport_initial_secret`.
		Complete: func(_ context.Context, call *rest.Call, answer rest.Object) (rest.Object, error) {
			id, _ := answer["id"].(string)
			credential, _ := answer["credential"].(string)
			call.Client.Keep(id, credential)
			return answer, nil
		},
		Fields: map[string]rest.Field{
			"name":             {IsSame: sameTrimmed},
			"path":             {IsSame: samePrefix},
			"rewrite_path":     {IsSame: samePrefix},
			"capacity.max_rps": {Encode: encodeRPS, Decode: decodeRPS},
		},
	}
}

// prefix returns a prefix of paths; every path when absent.
func prefix(description string) schema.StringAttribute {
	return schema.StringAttribute{
		Optional: true, Computed: true, Default: stringdefault.StaticString("/"),
		MarkdownDescription: description + " `/`, every path, when absent.",
	}
}
