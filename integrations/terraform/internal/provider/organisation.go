package provider

import (
	"context"
	"net/http"

	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/boolplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/setplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sallyport/sallyport/integrations/terraform/internal/client"
	"github.com/sallyport/sallyport/integrations/terraform/internal/rest"
)

const organisationPath, sshAuthorityPath = "/v1/organisation", "/v1/ssh-authority"

// organisation is the resource sallyport_organisation.
func organisation() *rest.Kind {
	return &rest.Kind{
		Name: "organisation",
		Noun: "organisation",
		Schema: schema.Schema{
			MarkdownDescription: "The settings of the organisation that the provider acts for. There is one in a configuration. It is there beforehand, and the end of the resource leaves it as it is.",
			Attributes: map[string]schema.Attribute{
				"id":   stable("The id of the organisation."),
				"name": required("The name: one line of 1 to 100 characters."),
				"ssh_authority": schema.SingleNestedAttribute{
					Optional: true, MarkdownDescription: "What certificates of the organisation's authority for ssh keys allow. When absent, they stay as they are.",
					Attributes: map[string]schema.Attribute{
						"extensions": schema.SetAttribute{
							Optional: true, Computed: true, ElementType: types.StringType,
							PlanModifiers:       []planmodifier.Set{setplanmodifier.UseNonNullStateForUnknown()},
							MarkdownDescription: "What persons may do: of `permit-X11-forwarding`, `permit-agent-forwarding`, `permit-port-forwarding`, `permit-pty` and `permit-user-rc`.",
						},
						"force_command": optional("The one command that certificates of persons allow; any when absent."),
						"mysocket_principal": schema.BoolAttribute{
							Optional: true, Computed: true, PlanModifiers: []planmodifier.Bool{boolplanmodifier.UseNonNullStateForUnknown()},
							MarkdownDescription: "Whether certificates carry the principal `mysocket_ssh_signed` too.",
						},
						"public_key": schema.StringAttribute{
							Computed: true, PlanModifiers: []planmodifier.String{stringplanmodifier.UseNonNullStateForUnknown()},
							MarkdownDescription: "The public key, one line for `TrustedUserCAKeys` of sshd.",
						},
					},
				},
			},
		},
		Create: changeOrganisation,
		Update: changeOrganisation,
		Read:   readOrganisation,
		Delete: func(context.Context, *rest.Call) error { return nil },
	}
}

func readOrganisation(ctx context.Context, call *rest.Call) (rest.Object, error) {
	answer, authority := rest.Object{}, rest.Object{}
	if _, err := call.Client.Get(ctx, organisationPath, &answer); err != nil {
		return nil, err
	}
	if id := call.Text("id"); id != "" && id != answer["id"] {
		return nil, gone("organisation", id)
	}
	_, isWritten := call.Values["ssh_authority"].(rest.Object)
	isImport := call.Values["name"] == nil
	if !isWritten && !isImport {
		return answer, nil
	}
	_, err := call.Client.Get(ctx, sshAuthorityPath, &authority)
	if problem := client.AsProblem(err); isImport && problem != nil && problem.Status == http.StatusForbidden {
		return answer, nil // the token may not see it
	}
	answer["ssh_authority"] = authority
	return answer, err
}

func changeOrganisation(ctx context.Context, call *rest.Call) (rest.Object, error) {
	_, err := call.Client.Do(ctx, http.MethodPatch, organisationPath, rest.Object{"name": call.Text("name")}, nil)
	if err != nil {
		return nil, err
	}
	if written, ok := call.Values["ssh_authority"].(rest.Object); ok {
		body := rest.Object{"force_command": written["force_command"]}
		for _, name := range []string{"extensions", "mysocket_principal"} {
			if written[name] != nil {
				body[name] = written[name]
			}
		}
		if _, err := call.Client.Do(ctx, http.MethodPatch, sshAuthorityPath, body, nil); err != nil {
			return nil, err
		}
	}
	return readOrganisation(ctx, &rest.Call{Client: call.Client, Kind: call.Kind, Values: rest.Object{"name": call.Text("name"), "ssh_authority": call.Values["ssh_authority"]}})
}
