package provider

import (
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/int64planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"

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
			MarkdownDescription: "An identity provider, at which the visitors of sockets log in.",
			Attributes: map[string]schema.Attribute{
				"id":                       stable("The id of the provider."),
				"created_at":               stable("When it was added."),
				"redirect_uri":             stable("The redirect URI to register at the provider; empty for `local`."),
				"backchannel_logout_uri":   stable("The address to register for OpenID Connect Back-Channel Logout; empty where the provider has none."),
				"post_logout_redirect_uri": stable("The address to register for RP-Initiated Logout; empty where the provider has none."),
				"name":                     parent("The name: 1 to 32 lower-case letters, digits and hyphens. It is part of the redirect URI, so another name makes a new provider."),
				"kind": schema.StringAttribute{
					Required: true, MarkdownDescription: "One of `oidc`, `google`, `microsoft`, `github`, `facebook`, `local`. Another kind makes a new provider.",
					PlanModifiers: []planmodifier.String{stringplanmodifier.RequiresReplace()},
					Validators:    []validator.String{stringvalidator.OneOf("oidc", "google", "microsoft", "github", "facebook", "local")},
				},
				"client_id": optional("The client id that the provider gave; `local` has none."),
				"client_secret_wo": schema.StringAttribute{
					Optional: true, WriteOnly: true,
					MarkdownDescription: "The client secret that the provider gave, or the secret that signs messages to the hook of `local`. It is neither in the plan nor in the state.",
				},
				"client_secret_wo_version": numberOr(1, "A number that changes with the secret: another version has the secret sent again."),
				"issuer":                   optional("The issuer, for `oidc`; for `microsoft` and `github` an address instead of the usual one."),
				"tenant":                   optional("The id of the tenant, for `microsoft`."),
				"scopes":                   texts("Scopes to ask for beside `openid`, `email` and `profile`."),
				"groups_claim":             optional("The claim that names a person's groups, or a JSON pointer to it such as `/realm_access/roles`."),
				"ca_pem":                   optional("Root certificates in PEM that verify the provider's certificate, in place of the system's."),
				"trust_email":              flagOr(false, "Whether an e-mail address counts that the provider does not declare verified."),
				"check_minutes": schema.Int64Attribute{
					Optional: true, Computed: true, PlanModifiers: []planmodifier.Int64{int64planmodifier.UseStateForUnknown()},
					MarkdownDescription: "How often control asks the provider whether logins are still good, in minutes; 0 for never.",
				},
				"require_totp": flagOr(false, "Whether the persons of `local` need one-time codes beside their passwords."),
				"hook":         optional("The URL that takes messages to the persons of `local`, by POST, in JSON."),
			},
		},
		Fields: map[string]rest.Field{
			"client_secret_wo":         {Name: "client_secret", SentWith: "client_secret_wo_version"},
			"client_secret_wo_version": {Local: true, Initial: int64(1)},
			"scopes":                   {Absent: []any{}},
			"ca_pem":                   {IsSame: sameTrimmed},
		},
	}
}
