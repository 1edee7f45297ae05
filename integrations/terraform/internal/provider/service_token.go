package provider

import (
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/boolplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/objectplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/setplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sallyport/sallyport/integrations/terraform/internal/rest"
)

// serviceToken is the resource sallyport_service_token.
func serviceToken() *rest.Kind {
	return &rest.Kind{
		Name:       "service_token",
		Noun:       "service token",
		Collection: "/v1/service-tokens",
		Schema: schema.Schema{
			MarkdownDescription: "A service token, with which a machine comes into sockets that require an identity. Policies name it, and decide what it may do. Every change makes a new token. Its secret is neither in the plan nor in the state: the ephemeral resource `sallyport_initial_secret` gives it in the run that makes the token, and `sallyport_service_token_certificate` gives client certificates in any run.",
			Attributes: map[string]schema.Attribute{
				"id":           stable("The id of the token, for `Sallyport-Token-Id`."),
				"created_at":   stable("When the token was made."),
				"name":         parent("The name, unique in the organisation: one line of 1 to 100 characters."),
				"email":        replaced("The e-mail address that origins get in `X-Auth-Email`."),
				"display_name": replaced("The name that origins get in `X-Auth-Name`; the token's name when absent."),
				"expires_at":   replaced("When the token ends, such as `2027-01-01T00:00:00Z`; it does not end when absent."),
				"sockets":      fixedTexts("The ids of the sockets for which the token is valid; all of them, future ones too, when absent."),
				"scope": schema.SingleNestedAttribute{
					Optional: true, PlanModifiers: []planmodifier.Object{objectplanmodifier.RequiresReplace()},
					MarkdownDescription: "Bounds of the token, which apply before policies: both must allow a request.",
					Attributes: map[string]schema.Attribute{
						"methods": fixedTexts("HTTP methods; `GET` stands for `HEAD`, too."),
						"paths":   fixedTexts("HTTP paths, each with everything beneath it."),
						"types":   fixedTexts("Types of sockets: `http`, `https`, `tls`."),
						"ports": schema.SetAttribute{
							Optional: true, ElementType: types.Int64Type, MarkdownDescription: "Public ports of clients' connections.",
							PlanModifiers: []planmodifier.Set{setplanmodifier.RequiresReplace()},
						},
						"read_only": schema.BoolAttribute{
							Optional: true, MarkdownDescription: "Whether only GET, HEAD and OPTIONS are allowed, and no WebSocket.",
							PlanModifiers: []planmodifier.Bool{boolplanmodifier.RequiresReplace()},
						},
					},
				},
			},
		},
		Fields: map[string]rest.Field{
			"name":          {IsSame: sameTrimmed},
			"email":         {IsSame: sameText},
			"display_name":  {IsSame: sameTrimmed},
			"expires_at":    {IsSame: sameMoment},
			"scope.methods": {IsSame: sameWords},
			"scope.paths":   {IsSame: samePaths},
		},
		Complete: keepSecret("secret"),
	}
}

// replaced returns a text that may be there; another one makes a new object.
func replaced(description string) schema.StringAttribute {
	return schema.StringAttribute{
		Optional: true, MarkdownDescription: description,
		PlanModifiers: []planmodifier.String{stringplanmodifier.RequiresReplace()},
	}
}

// fixedTexts returns a set of texts; another one makes a new object.
func fixedTexts(description string) schema.SetAttribute {
	attribute := texts(description)
	attribute.PlanModifiers = []planmodifier.Set{setplanmodifier.RequiresReplace()}
	return attribute
}
