package provider

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/boolplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sallyport/sallyport/integrations/terraform/internal/client"
	"github.com/sallyport/sallyport/integrations/terraform/internal/rest"
)

// everywhere is the place of a policy that is attached to all sockets.
const everywhere = "everywhere"

// policyAttachment is the resource sallyport_policy_attachment.
func policyAttachment() *rest.Kind {
	return &rest.Kind{
		Name:     "policy_attachment",
		Noun:     "attachment of a policy",
		Import:   []string{"policy_id", "place"},
		Schema:   attachmentSchema(),
		Fields:   map[string]rest.Field{"force": {Local: true, Initial: false}},
		Create:   attach,
		Read:     readAttachment,
		Update:   readAttachment, // only force changes in place, and it is of the state alone
		Delete:   detach,
		Validate: onePlace,
	}
}

func attachmentSchema() schema.Schema {
	return schema.Schema{
		MarkdownDescription: "A policy at its place: one socket, or all sockets of the organisation.",
		Attributes: map[string]schema.Attribute{
			"id":        stable("The id: the policy's, a slash, and the socket's id or `everywhere`."),
			"policy_id": parentID("The id of the policy.", "policy"),
			"socket_id": schema.StringAttribute{
				Optional: true, MarkdownDescription: "The id of the socket.",
				PlanModifiers: []planmodifier.String{stringplanmodifier.RequiresReplace()},
				Validators:    []validator.String{id{"socket"}},
			},
			"everywhere": schema.BoolAttribute{
				Optional: true, MarkdownDescription: "`true`: all sockets of the organisation, future ones included, in place of `socket_id`.",
				PlanModifiers: []planmodifier.Bool{boolplanmodifier.RequiresReplace()},
			},
			"force": flagOr(false, "Whether to attach or detach the policy although a socket would then admit every client, or deny every client."),
		},
	}
}

func onePlace(ctx context.Context, request resource.ValidateConfigRequest, response *resource.ValidateConfigResponse) {
	var socket types.String
	var all types.Bool
	response.Diagnostics.Append(request.Config.GetAttribute(ctx, path.Root("socket_id"), &socket)...)
	response.Diagnostics.Append(request.Config.GetAttribute(ctx, path.Root("everywhere"), &all)...)
	isEverywhere := all.ValueBool()
	if socket.IsUnknown() || all.IsUnknown() || isEverywhere == socket.IsNull() {
		return
	}
	response.Diagnostics.AddError("One place for the policy", "An attachment has either `socket_id` or `everywhere = true`.")
}

// placeOf returns the place of an attachment: in an import, one text says which.
func placeOf(call *rest.Call) string {
	switch {
	case call.Text("place") != "":
		return call.Text("place")
	case call.Values["everywhere"] == true:
		return everywhere
	}
	return call.Text("socket_id")
}

func move(ctx context.Context, call *rest.Call, verb string) (rest.Object, error) {
	body := rest.Object{"force": call.Values["force"] == true}
	if place := placeOf(call); place == everywhere {
		body["everywhere"] = true
	} else {
		body["socket"] = place
	}
	answer := rest.Object{}
	// The same again changes nothing, so that a lost answer does not matter.
	_, err := call.Client.Create(ctx, call.Path("/v1/policies/{policy_id}/"+verb), body, &answer)
	return answer, err
}

func attach(ctx context.Context, call *rest.Call) (rest.Object, error) {
	answer, err := move(ctx, call, "attach")
	if err != nil {
		return nil, hint(err)
	}
	return attachment(call, answer)
}

func detach(ctx context.Context, call *rest.Call) error {
	_, err := move(ctx, call, "detach")
	return hint(err)
}

// hint says how to do what control refuses without force.
func hint(err error) error {
	if client.HasCode(err, "opens-sockets") || client.HasCode(err, "closes-sockets") {
		return fmt.Errorf("%w; in Terraform: set `force = true` here and apply, or name the policy in `policies` of the socket", err)
	}
	return err
}

func readAttachment(ctx context.Context, call *rest.Call) (rest.Object, error) {
	answer := rest.Object{}
	if _, err := call.Client.Get(ctx, call.Path("/v1/policies/{policy_id}"), &answer); err != nil {
		return nil, err
	}
	return attachment(call, answer)
}

// attachment returns one place of a policy as an object.
func attachment(call *rest.Call, policy rest.Object) (rest.Object, error) {
	where := placeOf(call)
	object := rest.Object{"policy_id": policy["id"], "id": fmt.Sprintf("%s/%s", policy["id"], where)}
	isThere := slices.Contains(list(policy["sockets"]), any(where))
	if where == everywhere {
		isThere = policy["everywhere"] == true
		object["everywhere"] = true
	} else {
		object["socket_id"] = where
		object["everywhere"] = call.Values["everywhere"]
	}
	if !isThere {
		return nil, &client.Problem{Status: http.StatusNotFound, Code: "not-found", Detail: "the policy is not attached there"}
	}
	return object, nil
}
