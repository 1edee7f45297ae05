package provider

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/sallyport/sallyport/integrations/terraform/internal/client"
	"github.com/sallyport/sallyport/integrations/terraform/internal/rest"
)

// listed returns the first object of a list that fits. The API has no path for one of these alone.
func listed(ctx context.Context, api *client.Client, path, noun string, fits func(rest.Object) bool) (rest.Object, error) {
	items, err := api.List(ctx, path, nil)
	if err != nil {
		return nil, err
	}
	for _, item := range items {
		object := rest.Object{}
		if err := json.Unmarshal(item, &object); err != nil {
			return nil, err
		}
		if fits(object) {
			return object, nil
		}
	}
	return nil, &client.Problem{Status: http.StatusNotFound, Code: "not-found", Detail: fmt.Sprintf("there is no such %s", noun)}
}

// readByID reads an object from the list of its kind.
func readByID(ctx context.Context, call *rest.Call) (rest.Object, error) {
	return listed(ctx, call.Client, call.Path(call.Kind.Collection), call.Kind.Noun, func(object rest.Object) bool {
		return object["id"] == call.Values["id"]
	})
}
