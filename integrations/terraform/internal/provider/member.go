package provider

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"

	"github.com/sallyport/sallyport/integrations/terraform/internal/client"
	"github.com/sallyport/sallyport/integrations/terraform/internal/rest"
)

// member is the resource sallyport_member: a person in the organisation, or the invitation of one.
func member() *rest.Kind {
	return &rest.Kind{
		Name:       "member",
		Noun:       "member",
		Collection: "/v1/invitations",
		Import:     []string{"email"},
		Schema: schema.Schema{
			MarkdownDescription: "A member of the organisation. Its creation sends an invitation, which the person accepts; both are the same resource. An invitation that ended without an answer is sent again.",
			Attributes: map[string]schema.Attribute{
				"id":    stable("The e-mail address again, in lower case."),
				"email": parent("The e-mail address of the person. Another address makes a new member."),
				"role": schema.StringAttribute{
					Required: true, MarkdownDescription: "`viewer`, `member`, `admin` or `owner`: each may do what those before it may.",
					Validators: []validator.String{stringvalidator.OneOf("viewer", "member", "admin", "owner")},
				},
			},
		},
		Fields: map[string]rest.Field{"email": {IsSame: sameEmail}},
		Create: invite,
		Read:   readMember,
		Update: changeRole,
		Delete: removeMember,
	}
}

// sameEmail says whether two addresses are one: letters of either case are the same.
func sameEmail(mine, theirs any) bool {
	return strings.EqualFold(strings.TrimSpace(fmt.Sprint(mine)), strings.TrimSpace(fmt.Sprint(theirs)))
}

// person finds the member or the invitation, and the path of it.
func person(ctx context.Context, call *rest.Call) (found rest.Object, path string, err error) {
	fits := func(object rest.Object) bool { return sameEmail(object["email"], call.Values["email"]) }
	for _, path := range []string{"/v1/members", "/v1/invitations"} {
		found, err = listed(ctx, call.Client, path, "member", fits)
		if err == nil {
			return found, path + "/" + url.PathEscape(fmt.Sprint(found["id"])), nil
		}
		if !client.IsGone(err) {
			return nil, "", err
		}
	}
	return nil, "", err
}

func memberOf(found rest.Object) rest.Object {
	return rest.Object{"id": strings.ToLower(fmt.Sprint(found["email"])), "email": found["email"], "role": found["role"]}
}

func invite(ctx context.Context, call *rest.Call) (rest.Object, error) {
	if _, _, err := person(ctx, call); err == nil {
		return nil, fmt.Errorf("%s is a member already, or is invited: import the member by this address", call.Text("email"))
	} else if !client.IsGone(err) {
		return nil, err
	}
	answer := rest.Object{}
	body := rest.Object{"email": call.Values["email"], "role": call.Values["role"]}
	if _, err := call.Client.Create(ctx, "/v1/invitations", body, &answer); err != nil && !client.HasCode(err, "secret-already-shown") {
		return nil, err
	}
	return readMember(ctx, call)
}

func readMember(ctx context.Context, call *rest.Call) (rest.Object, error) {
	found, _, err := person(ctx, call)
	if err != nil {
		return nil, err
	}
	return memberOf(found), nil
}

// changeRole changes the role of a member. An invitation has the role that was offered, so another one takes its place.
func changeRole(ctx context.Context, call *rest.Call) (rest.Object, error) {
	_, path, err := person(ctx, call)
	if err != nil {
		return nil, err
	}
	if strings.HasPrefix(path, "/v1/members/") {
		if _, err := call.Client.Do(ctx, http.MethodPatch, path, rest.Object{"role": call.Values["role"]}, nil); err != nil {
			return nil, err
		}
		return readMember(ctx, call)
	}
	if _, err := call.Client.Do(ctx, http.MethodDelete, path, nil, nil); err != nil {
		return nil, err
	}
	return invite(ctx, call)
}

func removeMember(ctx context.Context, call *rest.Call) error {
	_, path, err := person(ctx, call)
	if err != nil {
		return err
	}
	_, err = call.Client.Do(ctx, http.MethodDelete, path, nil, nil)
	return err
}
