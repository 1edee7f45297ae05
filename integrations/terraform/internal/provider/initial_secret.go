package provider

import (
	"context"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/ephemeral/schema"

	"github.com/sallyport/sallyport/integrations/terraform/internal/client"
	"github.com/sallyport/sallyport/integrations/terraform/internal/rest"
)

// initialSecret is the ephemeral resource sallyport_initial_secret.
var initialSecret = rest.Secret{
	Name: "initial_secret", Noun: "initial secret",
	Schema: schema.Schema{
		MarkdownDescription: "The secret that control showed when this run of Terraform made an object: the credential of a `sallyport_tunnel` (also one that the run made by another `credential_version`), the join token of a `sallyport_edge`, or the secret of a `sallyport_service_token`. In every other run it is null, since control shows a secret once. So a plan makes no new secret, and ends none that a machine uses.",
		Attributes: map[string]schema.Attribute{
			"id":     schema.StringAttribute{Required: true, MarkdownDescription: "The id of the tunnel, of the edge or of the service token."},
			"secret": shownSecret("The secret, in the run that made the object; null otherwise."),
		},
	},
	Open: func(_ context.Context, api *client.Client, written rest.Object) (rest.Object, string, error) {
		made := rest.Object{}
		if secret, ok := api.Kept(fmt.Sprint(written["id"])); ok {
			made["secret"] = secret
		}
		return made, "", nil
	},
}
