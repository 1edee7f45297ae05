package provider

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"

	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"

	"github.com/sallyport/sallyport/integrations/terraform/internal/client"
	"github.com/sallyport/sallyport/integrations/terraform/internal/rest"
)

// edge is the resource sallyport_edge: a name for which a machine may join, and the edge that has joined.
func edge() *rest.Kind {
	return &rest.Kind{
		Name:       "edge",
		Noun:       "edge",
		Collection: "/v1/edge-tokens",
		Import:     []string{"name"},
		Schema: schema.Schema{
			MarkdownDescription: "An edge of the installation, by its name. Its creation makes a token with which one machine may join under the name; the ephemeral resource `sallyport_initial_secret` gives the token in the same run. Its end removes the edge. The token is one of the account that owns the installation.",
			Attributes: map[string]schema.Attribute{
				"id":   stable("The name again."),
				"name": parent("The name of the edge. Another name makes a new one."),
				"region": schema.StringAttribute{
					Optional: true, MarkdownDescription: "The region of the edge; its machine says it when absent. Another region makes a new edge.",
					PlanModifiers: []planmodifier.String{stringplanmodifier.RequiresReplace()},
				},
				"token_id":      stable("The id of the token that the creation made. An edge that is made anew has another one, so that its machine can follow: `triggers_replace`. Null after the import of an edge that joined more than a month ago."),
				"token_minutes": numberOr(60, "How long the machine may take until it joins, at most 10080. After an import it is 60."),
			},
		},
		Fields: map[string]rest.Field{"token_minutes": {Local: true, Initial: int64(60)}},
		Create: createEdge,
		Read: func(ctx context.Context, call *rest.Call) (rest.Object, error) {
			return readEdge(ctx, call, call.Text("name"))
		},
		// Only the lifetime of a token that is given already changes in place.
		Update: func(ctx context.Context, call *rest.Call) (rest.Object, error) {
			return readEdge(ctx, call, call.Text("name"))
		},
		Delete: deleteEdge,
	}
}

// edgeOf is an edge, or a token for one, as far as it matters here.
type edgeOf struct {
	ID     string `json:"id"`
	Name   string `json:"name"`
	Region string `json:"region"`
	State  string `json:"state"`
	// UsedByID is the edge that joined with a token.
	UsedByID string `json:"used_by_id"`
}

func createEdge(ctx context.Context, call *rest.Call) (rest.Object, error) {
	name := call.Text("name")
	joined, err := edgesOf(ctx, call, "/v1/edges", name)
	if err != nil {
		return nil, err
	}
	if len(joined) > 0 {
		return nil, fmt.Errorf("there is an edge %q already: import it by its name, or take another name", name)
	}
	body := rest.Object{"name": name, "minutes": call.Values["token_minutes"]}
	if region := call.Text("region"); region != "" {
		body["region"] = region
	}
	var made struct {
		Token string `json:"token"`
	}
	_, err = call.Client.Create(ctx, call.Kind.Collection, body, &made)
	if client.HasCode(err, "secret-already-shown") {
		// The answer was lost, and its token with it: another one takes its place.
		_, err = call.Client.Create(ctx, call.Kind.Collection, body, &made)
	}
	if err != nil {
		return nil, err
	}
	call.Client.Keep(name, made.Token)
	return readEdge(ctx, call, name)
}

// edgesOf are the items of a list with this name, the newest first.
func edgesOf(ctx context.Context, call *rest.Call, path, name string) ([]edgeOf, error) {
	items, err := call.Client.List(ctx, path, nil)
	if err != nil {
		return nil, err
	}
	found := []edgeOf{}
	for _, item := range items {
		var one edgeOf
		if err := json.Unmarshal(item, &one); err != nil {
			return nil, err
		}
		if one.Name == name {
			found = append(found, one)
		}
	}
	return found, nil
}

// readEdge finds the edge, or the newest token that waits or has ended without it.
func readEdge(ctx context.Context, call *rest.Call, name string) (rest.Object, error) {
	edges, err := edgesOf(ctx, call, "/v1/edges", name)
	if err != nil {
		return nil, err
	}
	tokens, err := edgesOf(ctx, call, "/v1/edge-tokens", name)
	if err != nil {
		return nil, err
	}
	found := edgeOf{}
	for _, token := range tokens {
		isOfEdge := len(edges) > 0 && token.UsedByID == edges[0].ID
		if found.ID == "" && (isOfEdge || token.State != "used") {
			found = token
		}
	}
	if len(edges) == 0 && found.ID == "" {
		return nil, &client.Problem{Status: http.StatusNotFound, Code: "not-found", Detail: fmt.Sprintf("there is no edge %q, and no token for one", name)}
	}
	object := rest.Object{"id": name, "name": name, "region": nil, "token_id": nil}
	if id := cmp.Or(call.Text("token_id"), found.ID); id != "" {
		object["token_id"] = id
	}
	region := found.Region
	if len(edges) > 0 {
		region = edges[0].Region
	}
	// The owner of an edge may leave the region to its machine. An import takes what there is.
	isImport := call.Prior != nil && call.Text("id") == ""
	if (isImport || call.Text("region") != "") && region != "" {
		object["region"] = region
	}
	return object, nil
}

func deleteEdge(ctx context.Context, call *rest.Call) error {
	name := call.Text("name")
	for _, path := range []string{"/v1/edge-tokens", "/v1/edges"} {
		found, err := edgesOf(ctx, call, path, name)
		if err != nil {
			return err
		}
		for _, one := range found {
			if _, err := call.Client.Do(ctx, http.MethodDelete, path+"/"+url.PathEscape(one.ID), nil, nil); err != nil {
				return err
			}
		}
	}
	return nil
}
