package provider

import (
	"context"
	"net/http"

	"github.com/hashicorp/terraform-plugin-framework/resource/schema"

	"github.com/sallyport/sallyport/integrations/terraform/internal/client"
	"github.com/sallyport/sallyport/integrations/terraform/internal/rest"
)

// organisation is the resource sallyport_organisation: the settings of the organisation that the provider acts for.
func organisation() *rest.Kind {
	return &rest.Kind{
		Name:       "organisation",
		Noun:       "organisation",
		Collection: "/v1/organisation",
		Item:       "/v1/organisation",
		Schema: schema.Schema{
			MarkdownDescription: "The settings of the organisation that the provider acts for. There is one such resource at most. Its end leaves the settings as they are.",
			Attributes: map[string]schema.Attribute{
				"id":   stable("The id of the organisation."),
				"name": required("The name: one line of 1 to 100 characters."),
				"ssh_authority": schema.SingleNestedAttribute{
					Optional: true, MarkdownDescription: "The authority that signs ssh keys of persons. What is absent stays as it is.",
					Attributes: map[string]schema.Attribute{
						"extensions":         texts("What persons may do: of `permit-X11-forwarding`, `permit-agent-forwarding`, `permit-port-forwarding`, `permit-pty` and `permit-user-rc`."),
						"force_command":      optional("The one command that certificates of persons allow; any when absent."),
						"mysocket_principal": flagOr(false, "Whether certificates carry the principal `mysocket_ssh_signed` too."),
					},
				},
			},
		},
		Fields: map[string]rest.Field{"name": {IsSame: sameTrimmed}},
		Create: writeOrganisation,
		Update: writeOrganisation,
		Read:   readOrganisation,
		Delete: func(context.Context, *rest.Call) error { return nil },
	}
}

func readOrganisation(ctx context.Context, call *rest.Call) (rest.Object, error) {
	answer := rest.Object{}
	if _, err := call.Client.Get(ctx, "/v1/organisation", &answer); err != nil {
		return nil, err
	}
	if id := call.Text("id"); id != "" && id != answer["id"] {
		return nil, &client.Problem{Status: http.StatusNotFound, Code: "not-found",
			Detail: "the provider acts for another organisation, " + answer["id"].(string)}
	}
	// Settings that nobody wrote down are not looked at.
	if _, isWritten := call.Values["ssh_authority"].(rest.Object); !isWritten {
		return answer, nil
	}
	authority := rest.Object{}
	if _, err := call.Client.Get(ctx, "/v1/ssh-authority", &authority); err != nil {
		return nil, err
	}
	answer["ssh_authority"] = authority
	return answer, nil
}

func writeOrganisation(ctx context.Context, call *rest.Call) (rest.Object, error) {
	name := rest.Object{"name": call.Values["name"]}
	if _, err := call.Client.Do(ctx, http.MethodPatch, "/v1/organisation", name, nil); err != nil {
		return nil, err
	}
	if authority, isWritten := call.Values["ssh_authority"].(rest.Object); isWritten {
		body := rest.Object{"force_command": authority["force_command"], "mysocket_principal": authority["mysocket_principal"]}
		if authority["extensions"] != nil {
			body["extensions"] = authority["extensions"]
		}
		if _, err := call.Client.Do(ctx, http.MethodPatch, "/v1/ssh-authority", body, nil); err != nil {
			return nil, err
		}
	}
	return readOrganisation(ctx, call)
}
