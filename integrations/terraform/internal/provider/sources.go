package provider

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sallyport/sallyport/integrations/terraform/internal/client"
	"github.com/sallyport/sallyport/integrations/terraform/internal/rest"
)

func foundText(description string) schema.StringAttribute {
	return schema.StringAttribute{Computed: true, MarkdownDescription: description}
}

func foundNumber(description string) schema.Int64Attribute {
	return schema.Int64Attribute{Computed: true, MarkdownDescription: description}
}

func foundFlag(description string) schema.BoolAttribute {
	return schema.BoolAttribute{Computed: true, MarkdownDescription: description}
}

func foundTexts(description string) schema.ListAttribute {
	return schema.ListAttribute{Computed: true, ElementType: types.StringType, MarkdownDescription: description}
}

func foundLabels() schema.MapAttribute {
	return schema.MapAttribute{Computed: true, ElementType: types.StringType, MarkdownDescription: "The labels."}
}

func foundList(description string, of map[string]schema.Attribute) schema.ListNestedAttribute {
	return schema.ListNestedAttribute{Computed: true, MarkdownDescription: description, NestedObject: schema.NestedAttributeObject{Attributes: of}}
}

func labelFilter(noun string) schema.MapAttribute {
	return schema.MapAttribute{
		Optional: true, ElementType: types.StringType,
		MarkdownDescription: "Only " + noun + " that have all these labels.",
	}
}

// info is the data source sallyport_info.
var info = rest.Source{
	Name: "info", Noun: "installation",
	Schema: schema.Schema{
		MarkdownDescription: "What the installation says of itself.",
		Attributes: map[string]schema.Attribute{
			"version":          foundText("The version of control."),
			"domain":           foundText("The domain under which sockets get their names."),
			"api":              foundText("The address of the API that the provider uses."),
			"tunnel_host":      foundText("The host that connectors dial."),
			"tunnel_port":      foundNumber("The TCP port that connectors dial."),
			"tunnel_quic_port": foundNumber("The UDP port that connectors dial over QUIC, if there is one."),
			"has_public_names": foundFlag("Whether names have certificates of public authorities, so that machines need no `ca_pem`."),
			"ca_pem":           foundText("The root certificate in PEM, if the installation has its own authority."),
			"ca_fingerprint":   foundText("`sha256:` and the hexadecimal SHA-256 of the root certificate."),
		},
	},
	Read: func(ctx context.Context, api *client.Client, _ rest.Object) (rest.Object, error) {
		answer := rest.Object{}
		_, err := api.Get(ctx, "/v1/info", &answer)
		answer["api"] = api.API()
		if answer["has_public_names"] == nil {
			answer["has_public_names"] = false
		}
		return answer, err
	},
}

func foundSocket() map[string]schema.Attribute {
	return map[string]schema.Attribute{
		"id":              foundText("The id."),
		"name":            foundText("The name."),
		"type":            foundText("The type."),
		"dns_name":        foundText("The host name."),
		"url":             foundText("The address for clients."),
		"port":            foundNumber("The port of its own, if there is one."),
		"labels":          foundLabels(),
		"domains":         foundTexts("The domains that lead to the socket."),
		"policies":        foundTexts("The names of the policies that apply."),
		"created_at":      foundText("When the socket was made."),
		"tunnels_total":   foundNumber("How many tunnels there are."),
		"tunnels_up":      foundNumber("How many tunnels are up."),
		"origins_failing": foundNumber("How many origins get no requests, because they fail."),
	}
}

// socketSource is the data source sallyport_socket.
func socketSource() rest.Source {
	attributes := foundSocket()
	attributes["id"] = schema.StringAttribute{Optional: true, Computed: true, MarkdownDescription: "The id; this or `name` finds the socket."}
	attributes["name"] = schema.StringAttribute{Optional: true, Computed: true, MarkdownDescription: "The name; this or `id` finds the socket."}
	attributes["tunnels"] = foundList("The tunnels.", map[string]schema.Attribute{
		"id": foundText("The id."), "name": foundText("The name, if there is one."), "labels": foundLabels(),
		"status": foundText("Whether the connector of the tunnel is there."), "healthy": foundFlag("Whether the service passes the health check."),
		"region": foundText("The region of the edge that holds the tunnel."), "edge": foundText("The edge that holds the tunnel, where there are several."),
		"host": foundText("The host name of the connector's machine."), "live": foundNumber("How many requests and flows the tunnel carries now."),
		"since": foundText("When the tunnel came up."),
	})
	return rest.Source{
		Name: "socket", Noun: "socket",
		Schema: schema.Schema{
			MarkdownDescription: "A socket, with what is measured of it. `sallyport_socket` as a resource has none of that, so that plans stay empty.",
			Attributes:          attributes,
		},
		Read: func(ctx context.Context, api *client.Client, written rest.Object) (rest.Object, error) {
			key, _ := written["id"].(string)
			if name, ok := written["name"].(string); ok == (key != "") {
				return nil, errors.New("set one of `id` and `name`")
			} else if ok {
				key = name
			}
			answer := rest.Object{}
			path := "/v1/sockets/" + url.PathEscape(key)
			if _, err := api.Get(ctx, path, &answer); err != nil {
				return nil, err
			}
			tunnels, err := items(ctx, api, path+"/tunnels", nil)
			answer["tunnels"] = anys(tunnels)
			return answer, err
		},
	}
}

func anys(from []rest.Object) []any {
	to := make([]any, 0, len(from))
	for _, item := range from {
		to = append(to, item)
	}
	return to
}

// labelled reads a list, by labels where they are written.
func labelled(path, field string, each func(rest.Object) error) func(context.Context, *client.Client, rest.Object) (rest.Object, error) {
	return func(ctx context.Context, api *client.Client, written rest.Object) (rest.Object, error) {
		query := url.Values{}
		if labels, ok := written["labels"].(rest.Object); ok {
			for name, value := range labels {
				query.Add("label", fmt.Sprintf("%s=%v", name, value))
			}
			slices.Sort(query["label"])
		}
		found, err := items(ctx, api, path, query)
		for _, item := range found {
			if each != nil && err == nil {
				err = each(item)
			}
		}
		return rest.Object{field: anys(found)}, err
	}
}

// socketsSource is the data source sallyport_sockets.
var socketsSource = rest.Source{
	Name: "sockets", Noun: "sockets",
	Schema: schema.Schema{
		MarkdownDescription: "The sockets of the organisation, oldest first.",
		Attributes: map[string]schema.Attribute{
			"labels":  labelFilter("sockets"),
			"sockets": foundList("The sockets.", foundSocket()),
		},
	},
	Read: labelled("/v1/sockets", "sockets", nil),
}

// policiesSource is the data source sallyport_policies.
var policiesSource = rest.Source{
	Name: "policies", Noun: "policies",
	Schema: schema.Schema{
		MarkdownDescription: "The policies of the organisation, oldest first.",
		Attributes: map[string]schema.Attribute{
			"labels": labelFilter("policies"),
			"policies": foundList("The policies.", map[string]schema.Attribute{
				"id": foundText("The id."), "name": foundText("The name."), "labels": foundLabels(),
				"document":   foundText("The rules, as JSON."),
				"everywhere": foundFlag("Whether the policy applies to all sockets of the organisation."),
				"sockets":    foundTexts("The ids of the sockets that the policy is attached to one by one."),
			}),
		},
	},
	Read: labelled("/v1/policies", "policies", func(policy rest.Object) error {
		text, err := json.Marshal(policy["document"])
		policy["document"] = string(text)
		return err
	}),
}

// edgesSource is the data source sallyport_edges.
var edgesSource = rest.Source{
	Name: "edges", Noun: "edges",
	Schema: schema.Schema{
		MarkdownDescription: "The edges of the installation, by name, with what is measured of them. The token is one of the account that owns the installation. An installation on one machine has no edges.",
		Attributes: map[string]schema.Attribute{
			"region": schema.StringAttribute{Optional: true, MarkdownDescription: "Only edges of this region."},
			"edges": foundList("The edges.", map[string]schema.Attribute{
				"id": foundText("The id."), "name": foundText("The name."), "region": foundText("The region."),
				"state":     foundText("Whether the edge is there: `up`, `draining`, `down` or `unknown`."),
				"addresses": foundTexts("The addresses at which clients and connectors reach the edge."),
				"version":   foundText("The version of the edge's program."), "created_at": foundText("When the edge joined."),
				"since": foundText("When the edge started."), "tunnels": foundNumber("How many tunnels the edge holds."),
				"connections": foundNumber("How many connections of clients are open."),
			}),
		},
	},
	Read: func(ctx context.Context, api *client.Client, written rest.Object) (rest.Object, error) {
		found, err := items(ctx, api, "/v1/edges", nil)
		if region, ok := written["region"]; ok && region != nil {
			found = slices.DeleteFunc(found, func(edge rest.Object) bool { return edge["region"] != region })
		}
		return rest.Object{"edges": anys(found)}, err
	},
}
