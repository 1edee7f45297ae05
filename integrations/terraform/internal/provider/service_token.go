package provider

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/int64planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/objectplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/setplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sallyport/sallyport/integrations/terraform/internal/rest"
)

// serviceToken is the resource sallyport_service_token. Control changes no token, so each change makes a new one.
func serviceToken() *rest.Kind {
	return &rest.Kind{
		Name:       "service_token",
		Noun:       "service token",
		Collection: "/v1/service-tokens",
		Schema: schema.Schema{
			MarkdownDescription: "A service token, by which a program enters sockets with an identity. Every change makes a new token. Its secret is not in the state: the ephemeral resource `sallyport_initial_secret` gives it in the run that makes the token, and `sallyport_service_token_certificate` makes certificates at any time.",
			Attributes: map[string]schema.Attribute{
				"id":           stable("The id of the token, for the header `Sallyport-Token-Id`."),
				"created_at":   stable("When the token was made."),
				"name":         parent("The name, which policies use: unique in the organisation, one line of 1 to 100 characters."),
				"display_name": replacing("The name that origins get in `X-Auth-Name`; the token's name when absent."),
				"email":        replacing("The e-mail address that origins get in `X-Auth-Email`."),
				"expires_at":   replacingMoment("The end of the token, such as `2030-01-01T00:00:00Z`; it does not end when absent."),
				"sockets":      replacingTexts("The ids of the sockets for which the token is valid; all of them when absent."),
				"scope": schema.SingleNestedAttribute{
					Optional: true, MarkdownDescription: "Bounds of the token, which apply before policies. All of them must hold.",
					PlanModifiers: []planmodifier.Object{objectplanmodifier.RequiresReplace()},
					Attributes: map[string]schema.Attribute{
						"methods": replacingTexts("HTTP methods; `GET` stands for `HEAD`, too."),
						"paths":   replacingTexts("HTTP paths, each with everything beneath it."),
						"types":   replacingTexts("Types of sockets: `http`, `https`, `tls`."),
						"ports": schema.SetAttribute{
							Optional: true, ElementType: types.Int64Type, MarkdownDescription: "Public ports of clients' connections.",
							PlanModifiers: []planmodifier.Set{setplanmodifier.RequiresReplace()},
						},
						"read_only": flagOr(false, "Whether only GET, HEAD and OPTIONS are allowed, and no WebSocket."),
					},
				},
			},
		},
		Complete: func(_ context.Context, call *rest.Call, answer rest.Object) (rest.Object, error) {
			id, _ := answer["id"].(string)
			secret, _ := answer["secret"].(string)
			call.Client.Keep(id, secret)
			return answer, nil
		},
		// The API leaves out what is false.
		Extend: func(_ context.Context, _ *rest.Call, answer rest.Object) error {
			if scope, ok := answer["scope"].(rest.Object); ok && scope["read_only"] == nil {
				scope["read_only"] = false
			}
			return nil
		},
		Fields: map[string]rest.Field{"expires_at": {IsSame: sameMoment}},
	}
}

// replacing returns a text that may be there; another one makes a new object.
func replacing(description string) schema.StringAttribute {
	return schema.StringAttribute{
		Optional: true, MarkdownDescription: description,
		PlanModifiers: []planmodifier.String{stringplanmodifier.RequiresReplace()},
	}
}

// replacingTexts returns a set of texts; another one makes a new object.
func replacingTexts(description string) schema.SetAttribute {
	set := texts(description)
	set.PlanModifiers = []planmodifier.Set{setplanmodifier.RequiresReplace()}
	return set
}

// replacingNumberOr returns a whole number with a default; another one makes a new object.
func replacingNumberOr(value int64, description string) schema.Int64Attribute {
	number := numberOr(value, description)
	number.PlanModifiers = []planmodifier.Int64{int64planmodifier.RequiresReplace()}
	return number
}

// replacingMoment returns a time that may be there; another time makes a new object.
func replacingMoment(description string) schema.StringAttribute {
	const why = "Another time makes a new object."
	replaced := func(_ context.Context, request planmodifier.StringRequest, response *stringplanmodifier.RequiresReplaceIfFuncResponse) {
		response.RequiresReplace = !sameMoment(request.StateValue.ValueString(), request.PlanValue.ValueString())
	}
	return schema.StringAttribute{
		Optional: true, MarkdownDescription: description,
		PlanModifiers: []planmodifier.String{stringplanmodifier.RequiresReplaceIf(replaced, why, why)},
	}
}
