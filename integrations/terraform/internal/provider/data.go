package provider

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sallyport/sallyport/integrations/terraform/internal/client"
	"github.com/sallyport/sallyport/integrations/terraform/internal/rest"
)

// Attributes of data sources.

func read(description string) schema.StringAttribute {
	return schema.StringAttribute{Computed: true, MarkdownDescription: description}
}

func readNumber(description string) schema.Int64Attribute {
	return schema.Int64Attribute{Computed: true, MarkdownDescription: description}
}

func readFlag(description string) schema.BoolAttribute {
	return schema.BoolAttribute{Computed: true, MarkdownDescription: description}
}

func readLabels() schema.MapAttribute {
	return schema.MapAttribute{Computed: true, ElementType: types.StringType, MarkdownDescription: "Its labels."}
}

func ask(description string) schema.StringAttribute {
	return schema.StringAttribute{Optional: true, Computed: true, MarkdownDescription: description}
}

func askLabels() schema.MapAttribute {
	return schema.MapAttribute{
		Optional: true, ElementType: types.StringType,
		MarkdownDescription: "Only those with all of these labels; an empty value stands for every value of its key.",
	}
}

func listOf(description string, attributes map[string]schema.Attribute) schema.ListNestedAttribute {
	return schema.ListNestedAttribute{
		Computed: true, MarkdownDescription: description,
		NestedObject: schema.NestedAttributeObject{Attributes: attributes},
	}
}

// socketFacts are what data sources say of a socket.
func socketFacts() map[string]schema.Attribute {
	return map[string]schema.Attribute{
		"id":            read("The id of the socket."),
		"name":          read("The name that its owner gave."),
		"dns_name":      read("Its public name."),
		"type":          read("`http`, `https`, `tcp`, `tls` or `udp`."),
		"url":           read("Where clients reach it."),
		"port":          readNumber("Its port, for `tcp`, `tls` and `udp`."),
		"labels":        readLabels(),
		"created_at":    read("When it was made."),
		"tunnels_total": readNumber("How many tunnels it has."),
		"tunnels_up":    readNumber("How many of its tunnels have a connector now."),
	}
}

// items returns a list of the API as plain objects, chosen by labels.
func items(ctx context.Context, api *client.Client, path string, written rest.Object) ([]any, error) {
	query := url.Values{}
	if wanted, ok := written["labels"].(rest.Object); ok {
		for _, key := range slices.Sorted(maps.Keys(wanted)) {
			selector := key
			if value, _ := wanted[key].(string); value != "" {
				selector += "=" + value
			}
			query.Add("label", selector)
		}
	}
	listed, err := api.List(ctx, path, query)
	if err != nil {
		return nil, err
	}
	found := make([]any, 0, len(listed))
	for _, item := range listed {
		object := rest.Object{}
		if err := json.Unmarshal(item, &object); err != nil {
			return nil, err
		}
		found = append(found, object)
	}
	return found, nil
}

// list returns a data source that has the items of a list of the API.
func listData(name, noun, path, description string, facts map[string]schema.Attribute, hasLabels bool) *rest.Data {
	attributes := map[string]schema.Attribute{name: listOf("What was found.", facts)}
	if hasLabels {
		attributes["labels"] = askLabels()
	}
	return &rest.Data{
		Name: name, Noun: noun,
		Schema: schema.Schema{MarkdownDescription: description, Attributes: attributes},
		Read: func(ctx context.Context, api *client.Client, written rest.Object) (rest.Object, error) {
			found, err := items(ctx, api, path, written)
			return rest.Object{name: found}, err
		},
	}
}

func socketsData() *rest.Data {
	return listData("sockets", "sockets", "/v1/sockets", "The sockets of the organisation.", socketFacts(), true)
}

func policiesData() *rest.Data {
	return listData("policies", "policies", "/v1/policies", "The policies of the organisation.", map[string]schema.Attribute{
		"id":         read("The id of the policy."),
		"name":       read("Its name."),
		"everywhere": readFlag("Whether it holds at all sockets."),
		"labels":     readLabels(),
		"created_at": read("When it was made."),
	}, true)
}

func edgesData() *rest.Data {
	return listData("edges", "edges", "/v1/edges", "The edges of the installation, for the account that owns it.", map[string]schema.Attribute{
		"id":         read("The id of the edge."),
		"name":       read("Its name."),
		"region":     read("Its region."),
		"state":      read("Whether it is there: `up`, `down` or `draining`."),
		"version":    read("The version of its program."),
		"addresses":  schema.ListAttribute{Computed: true, ElementType: types.StringType, MarkdownDescription: "Where clients and connectors reach it."},
		"tunnels":    readNumber("How many tunnels it holds."),
		"created_at": read("When it joined."),
		"heard_at":   read("When control heard of it last."),
	}, false)
}

// socketData is the data source sallyport_socket.
func socketData() *rest.Data {
	attributes := socketFacts()
	for name, description := range map[string]string{
		"id": "The id of the socket.", "name": "The name that its owner gave.", "dns_name": "Its public name.",
	} {
		attributes[name] = ask(description + " One of `id`, `name` and `dns_name` says which socket.")
	}
	return &rest.Data{
		Name: "socket", Noun: "socket",
		Schema: schema.Schema{MarkdownDescription: "One socket, by its id, its name or its public name.", Attributes: attributes},
		Read: func(ctx context.Context, api *client.Client, written rest.Object) (rest.Object, error) {
			by := ""
			for _, name := range []string{"id", "name", "dns_name"} {
				if written[name] == nil {
					continue
				}
				if by != "" {
					return nil, fmt.Errorf("write one of `%s` and `%s`: one is enough to find the socket", by, name)
				}
				by = name
			}
			if by == "" {
				return nil, errors.New("write one of `id`, `name` and `dns_name`: it says which socket")
			}
			found, err := items(ctx, api, "/v1/sockets", nil)
			if err != nil {
				return nil, err
			}
			found = slices.DeleteFunc(found, func(item any) bool { return item.(rest.Object)[by] != written[by] })
			if len(found) != 1 {
				return nil, fmt.Errorf("there are %d sockets with the %s %q, and one is wanted", len(found), by, written[by])
			}
			return found[0].(rest.Object), nil
		},
	}
}

// infoData is the data source sallyport_info.
func infoData() *rest.Data {
	return &rest.Data{
		Name: "info", Noun: "installation",
		Schema: schema.Schema{
			MarkdownDescription: "What the installation says of itself to everybody.",
			Attributes: map[string]schema.Attribute{
				"version":          read("The version of control."),
				"domain":           read("The domain under which sockets get their names."),
				"tunnel_host":      read("The host that connectors dial."),
				"tunnel_port":      readNumber("The TCP port that connectors dial."),
				"tunnel_quic_port": readNumber("The UDP port that connectors dial over QUIC."),
				"has_public_names": readFlag("Whether names have certificates of public authorities."),
				"ca_pem":           read("The root certificate in PEM, where the installation has an authority of its own."),
				"ca_fingerprint":   read("`sha256:` and the SHA-256 of the root certificate."),
			},
		},
		Read: func(ctx context.Context, api *client.Client, _ rest.Object) (rest.Object, error) {
			answer := rest.Object{}
			_, err := api.Get(ctx, "/v1/info", &answer)
			return answer, err
		},
	}
}
