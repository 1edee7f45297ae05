package provider

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

// unlessTypeChanges keeps a computed text while `type` stays.
type unlessTypeChanges struct{}

// Description says what it does.
func (unlessTypeChanges) Description(context.Context) string {
	return "The value stays while the type stays."
}

// MarkdownDescription says what it does.
func (m unlessTypeChanges) MarkdownDescription(ctx context.Context) string { return m.Description(ctx) }

// PlanModifyString keeps the value of the state.
func (unlessTypeChanges) PlanModifyString(ctx context.Context, request planmodifier.StringRequest, response *planmodifier.StringResponse) {
	if request.StateValue.IsNull() || !request.PlanValue.IsUnknown() {
		return
	}
	var before, after types.String
	response.Diagnostics.Append(request.State.GetAttribute(ctx, path.Root("type"), &before)...)
	response.Diagnostics.Append(request.Plan.GetAttribute(ctx, path.Root("type"), &after)...)
	if before.Equal(after) {
		response.PlanValue = request.StateValue
	}
}
