package provider

import (
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"

	"github.com/sallyport/sallyport/integrations/terraform/internal/rest"
)

// origin is the resource sallyport_origin.
func origin() *rest.Kind {
	return &rest.Kind{
		Name:       "origin",
		Noun:       "origin",
		Collection: "/v1/sockets/{socket_id}/origins",
		Import:     []string{"socket_id", "id"},
		Schema: schema.Schema{
			MarkdownDescription: "A direct origin: an address that edges dial themselves, for one socket. The operator allows their networks by `--direct-origins`.",
			Attributes: map[string]schema.Attribute{
				"id":           stable("The id of the origin."),
				"created_at":   stable("When the origin was made."),
				"socket_id":    parentID("The id of the socket. Another socket makes a new origin.", "socket"),
				"address":      required("The host name or address of the origin, which edges can reach, and its port: `10.0.0.7:8080`."),
				"region":       optional("The region of the origin; when absent, the region of each edge that dials the origin."),
				"weight":       numberOr(100, "The origin's share of the socket's flows beside the others, up to 1000; 0 takes no new ones."),
				"path":         prefix("The paths of the socket that the origin serves: this one and everything beneath it (`http` and `https` sockets). Of several that fit, the longest takes the request."),
				"rewrite_path": optional("The replacement of `path` in requests to the origin: `/` removes the prefix. The path stays as it is when absent."),
				"capacity":     capacity("What the origin can carry, from all edges together."),
				"tls": schema.SingleNestedAttribute{
					Optional: true, MarkdownDescription: "How an origin that speaks TLS proves its identity (`https` sockets). Edges refuse an origin that does not.",
					Attributes: map[string]schema.Attribute{
						"ca":          optional("The trusted authorities, in PEM, instead of those of the edges' machines."),
						"pin":         optional("The SHA-256 of the certificate that the origin must show, whatever its content: `sha256:` and 64 hexadecimal digits."),
						"server_name": optional("The name that the origin's certificate must have; the origin's host when absent."),
					},
				},
			},
		},
		Fields: map[string]rest.Field{
			"address":          {IsSame: sameText},
			"path":             {IsSame: samePrefix},
			"rewrite_path":     {IsSame: samePrefix},
			"tls.pin":          {IsSame: sameText},
			"tls.ca":           {IsSame: sameTrimmed},
			"capacity.max_rps": {Encode: encodeRPS, Decode: decodeRPS},
		},
	}
}
