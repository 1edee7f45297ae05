package provider

import (
	"context"
	"fmt"
	"net/http"

	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/int64planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"

	"github.com/sallyport/sallyport/integrations/terraform/internal/client"
	"github.com/sallyport/sallyport/integrations/terraform/internal/rest"
)

// identityProvider is the resource sallyport_identity_provider.
func identityProvider() *rest.Kind {
	return &rest.Kind{
		Name:       "identity_provider",
		Noun:       "identity provider",
		Collection: "/v1/providers",
		Item:       "/v1/providers/{name}",
		Import:     []string{"name"},
		Schema: schema.Schema{
			MarkdownDescription: "An identity provider, at which clients of sockets log in. Its client secret is neither in the plan nor in the state.",
			Attributes:          identityProviderAttributes(),
		},
		Fields: map[string]rest.Field{
			"client_secret_wo":         {Name: "client_secret", SentWith: "client_secret_wo_version"},
			"client_secret_wo_version": {Local: true, Initial: int64(1)},
			"scopes":                   {Absent: []any{}},
			"ca_pem":                   {IsSame: sameTrimmed},
			"issuer":                   {IsSame: samePrefix},
			"force":                    {Local: true, Initial: false},
		},
		Delete: func(ctx context.Context, call *rest.Call) error {
			path := call.Path(call.Kind.Item)
			if call.Values["force"] == true {
				path += "?force=true"
			}
			_, err := call.Client.Do(ctx, http.MethodDelete, path, nil, nil)
			if problem := client.AsProblem(err); problem != nil && problem.Status == http.StatusConflict {
				return fmt.Errorf("%w; in Terraform: set `force = true` here and apply first", err)
			}
			return err
		},
	}
}

func identityProviderAttributes() map[string]schema.Attribute {
	kinds := []string{"oidc", "google", "microsoft", "github", "facebook", "local"}
	kind := parent("The kind: OpenID Connect (`oidc`), a provider by name (`google`, `microsoft`, `github`, `facebook`), or this installation itself (`local`). Another kind makes a new provider.")
	kind.Validators = []validator.String{stringvalidator.OneOf(kinds...)}
	return map[string]schema.Attribute{
		"id":           stable("The id of the provider."),
		"created_at":   stable("When the provider was added."),
		"redirect_uri": stable("The redirect URI to register at the provider; empty for `local`."),
		"name":         parent("The name: 1 to 32 lower-case letters, digits and hyphens. It is part of the redirect URI. Another name makes a new provider."),
		"kind":         kind,
		"client_id":    optional("The client id that the provider gave; `local` has none. Another one ends the logins through the provider."),
		"client_secret_wo": schema.StringAttribute{
			Optional: true, WriteOnly: true, Sensitive: true,
			MarkdownDescription: "The client secret that the provider gave. It is neither in the plan nor in the state.",
		},
		"client_secret_wo_version": numberOr(1, "A number that changes with the client secret: another version has the secret sent again. Logins go on."),
		"issuer":                   optional("The issuer, for `oidc`; for `microsoft` and `github` an address in place of the usual one. Another one ends the logins through the provider."),
		"tenant":                   optional("The id of the tenant, for `microsoft`. Another one ends the logins through the provider."),
		"scopes":                   texts("Scopes to ask for beside `openid`, `email` and `profile`."),
		"groups_claim":             optional("The claim that names a person's groups, or a JSON pointer to it such as `/realm_access/roles`."),
		"trust_email":              flagOr(false, "Whether an e-mail address counts that the provider does not declare verified."),
		"check_minutes": schema.Int64Attribute{
			Optional: true, Computed: true, PlanModifiers: []planmodifier.Int64{int64planmodifier.UseStateForUnknown()},
			MarkdownDescription: "The interval in minutes at which control asks the provider whether logins are still good; 0: never. Control chooses when absent.",
		},
		"ca_pem":       optional("Root certificates in PEM that verify the provider's certificate, in place of the system's."),
		"hook":         optional("The URL that takes messages to the persons of `local`, by POST, in JSON."),
		"require_totp": flagOr(false, "Whether the persons of `local` need one-time codes beside their passwords."),
		"force":        flagOr(false, "Whether to delete the provider although sockets name it."),
	}
}
