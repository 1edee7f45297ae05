package provider

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-validators/int64validator"
	"github.com/hashicorp/terraform-plugin-framework/ephemeral/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sallyport/sallyport/integrations/terraform/internal/client"
	"github.com/sallyport/sallyport/integrations/terraform/internal/rest"
)

// maxTokenMinutes bounds how long an access token is good.
const maxTokenMinutes = 1440

// accessToken is the ephemeral resource sallyport_access_token.
var accessToken = rest.Secret{
	Name: "access_token", Noun: "access token",
	Schema: schema.Schema{
		MarkdownDescription: "An API token for this run of Terraform: for a provisioner, or for another provider. Each plan and each apply makes one, and deletes it at its end. A token that could not be deleted ends by itself.",
		Attributes: map[string]schema.Attribute{
			"name":   schema.StringAttribute{Optional: true, MarkdownDescription: "The purpose of the token; `terraform` when absent."},
			"scopes": schema.SetAttribute{Required: true, ElementType: types.StringType, MarkdownDescription: "What the token may do, such as `sockets:read`. It may do no more than the token of the provider."},
			"minutes": schema.Int64Attribute{
				Optional: true, MarkdownDescription: "How long the token is good at most; 60 when absent, 1440 at most.",
				Validators: []validator.Int64{int64validator.Between(1, maxTokenMinutes)},
			},
			"token":      shownSecret("The token."),
			"expires_at": shown("When it ends by itself."),
		},
	},
	Open: func(ctx context.Context, api *client.Client, written rest.Object) (rest.Object, string, error) {
		name := written["name"]
		if name == nil || name == "" {
			name = "terraform"
		}
		end := time.Now().Add(time.Duration(orNumber(written["minutes"], defaultMinutes)) * time.Minute)
		made := rest.Object{}
		body := rest.Object{"name": name, "scopes": written["scopes"], "expires_at": end.UTC().Format(time.RFC3339)}
		if _, err := create(ctx, api, "/v1/tokens", body, made); err != nil {
			return nil, "", err
		}
		return made, "/v1/tokens/" + url.PathEscape(fmt.Sprint(made["id"])), nil
	},
}
