package provider

import (
	"context"
	"net/http"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"

	"github.com/sallyport/sallyport/integrations/terraform/internal/rest"
)

// member is the resource sallyport_member.
func member() *rest.Kind {
	role := required("The role: `viewer`, `member`, `admin` or `owner`; each may do what those before it may. Another role for somebody who has not come yet sends another invitation.")
	role.Validators = []validator.String{stringvalidator.OneOf("viewer", "member", "admin", "owner")}
	return &rest.Kind{
		Name:   "member",
		Noun:   "member",
		Import: []string{"email"},
		Schema: schema.Schema{
			MarkdownDescription: "A member of the organisation. Somebody who is no member gets an invitation, which is good for 7 days; an invitation that ended is sent again by the next apply. The code of an invitation is neither in the plan nor in the state: the ephemeral resource `sallyport_initial_secret` gives it in the run that makes the invitation, by the e-mail address as id. The end of the resource removes the member, or withdraws the invitation.",
			Attributes: map[string]schema.Attribute{
				"id":    stable("The e-mail address, in lower case."),
				"email": parent("The e-mail address."),
				"role":  role,
			},
		},
		Fields: map[string]rest.Field{"email": {IsSame: sameText}},
		Create: changeMember,
		Update: changeMember,
		Read: func(ctx context.Context, call *rest.Call) (rest.Object, error) {
			path, found, err := findMember(ctx, call)
			if err == nil && path == "" {
				err = gone("member", call.Text("email"))
			}
			return found, err
		},
		Delete: func(ctx context.Context, call *rest.Call) error {
			path, _, err := findMember(ctx, call)
			if err == nil && path != "" {
				_, err = call.Client.Do(ctx, http.MethodDelete, path, nil, nil)
			}
			return err
		},
	}
}

const membersPath, invitationsPath = "/v1/members", "/v1/invitations"

// findMember returns the path of the member or of the invitation, and what it is; "" for neither.
func findMember(ctx context.Context, call *rest.Call) (string, rest.Object, error) {
	email := strings.ToLower(strings.TrimSpace(call.Text("email")))
	for _, path := range []string{membersPath, invitationsPath} {
		found, err := items(ctx, call.Client, path, nil)
		if err != nil {
			return "", nil, err
		}
		for _, one := range found {
			if of, _ := one["email"].(string); strings.ToLower(of) == email {
				id, _ := one["id"].(string)
				return path + "/" + id, rest.Object{"id": email, "email": of, "role": one["role"]}, nil
			}
		}
	}
	return "", nil, nil
}

// changeMember gives a member the role, or invites somebody with the role.
func changeMember(ctx context.Context, call *rest.Call) (rest.Object, error) {
	path, found, err := findMember(ctx, call)
	if err != nil || (found != nil && found["role"] == call.Text("role")) {
		return found, err
	}
	email := strings.ToLower(strings.TrimSpace(call.Text("email")))
	if strings.HasPrefix(path, membersPath) {
		_, err = call.Client.Do(ctx, http.MethodPatch, path, rest.Object{"role": call.Text("role")}, nil)
	} else {
		made := rest.Object{}
		_, err = call.Client.Create(ctx, invitationsPath, rest.Object{"email": email, "role": call.Text("role")}, &made)
		code, _ := made["code"].(string)
		call.Client.Keep(email, code)
	}
	return rest.Object{"id": email, "email": call.Text("email"), "role": call.Text("role")}, err
}
