package provider

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"

	"github.com/sallyport/sallyport/integrations/terraform/internal/client"
	"github.com/sallyport/sallyport/integrations/terraform/internal/rest"
)

// items reads all objects of a list.
func items(ctx context.Context, api *client.Client, path string, query url.Values) ([]rest.Object, error) {
	raw, err := api.List(ctx, path, query)
	if err != nil {
		return nil, err
	}
	found := make([]rest.Object, 0, len(raw))
	for _, item := range raw {
		object := rest.Object{}
		if err := json.Unmarshal(item, &object); err != nil {
			return nil, fmt.Errorf("the list %s is not what the API describes: %w", path, err)
		}
		found = append(found, object)
	}
	return found, nil
}

// first returns the first object of a list that has the value in the field; nil for none.
func first(ctx context.Context, api *client.Client, path, field string, value any) (rest.Object, error) {
	found, err := items(ctx, api, path, nil)
	for _, object := range found {
		if object[field] == value {
			return object, nil
		}
	}
	return nil, err
}

// gone is the error that an object is not there.
func gone(noun string, id any) error {
	return &client.Problem{Status: http.StatusNotFound, Code: "not-found", Detail: fmt.Sprintf("there is no %s %q", noun, id)}
}

// readListed reads an object of which the API has only a list.
func readListed(ctx context.Context, call *rest.Call) (rest.Object, error) {
	found, err := first(ctx, call.Client, call.Path(call.Kind.Collection), "id", call.Text("id"))
	if err == nil && found == nil {
		err = gone(call.Kind.Noun, call.Text("id"))
	}
	if err == nil && call.Kind.Extend != nil {
		err = call.Kind.Extend(ctx, call, found)
	}
	return found, err
}

// keepOwn has the state keep the words of attributes that never change, where they are known already. Control writes
// some of them in its own way.
func keepOwn(names ...string) func(context.Context, *rest.Call, rest.Object) error {
	return func(_ context.Context, call *rest.Call, answer rest.Object) error {
		for _, name := range names {
			if value := call.Values[name]; value != nil {
				answer[name] = value
			}
		}
		return nil
	}
}

// keepSecret keeps the secret that a creation shows, for `sallyport_initial_secret`.
func keepSecret(field string) func(context.Context, *rest.Call, rest.Object) (rest.Object, error) {
	return func(_ context.Context, call *rest.Call, answer rest.Object) (rest.Object, error) {
		id, _ := answer["id"].(string)
		secret, _ := answer[field].(string)
		call.Client.Keep(id, secret)
		return answer, nil
	}
}
