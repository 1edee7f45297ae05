package provider

import (
	"context"
	"fmt"

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

// forHTTP is the default of a number that only health checks over HTTP have.
type forHTTP int64

// Description says what it does.
func (n forHTTP) Description(context.Context) string {
	return fmt.Sprintf("The default is %d where the type is http.", int64(n))
}

// MarkdownDescription says what it does.
func (n forHTTP) MarkdownDescription(ctx context.Context) string { return n.Description(ctx) }

// PlanModifyInt64 plans the default where nothing is written.
func (n forHTTP) PlanModifyInt64(ctx context.Context, request planmodifier.Int64Request, response *planmodifier.Int64Response) {
	if !request.ConfigValue.IsNull() {
		return
	}
	var kind types.String
	response.Diagnostics.Append(request.Config.GetAttribute(ctx, request.Path.ParentPath().AtName("type"), &kind)...)
	switch {
	case kind.IsUnknown():
		response.PlanValue = types.Int64Unknown()
	case kind.ValueString() == "http":
		response.PlanValue = types.Int64Value(int64(n))
	default:
		response.PlanValue = types.Int64Null()
	}
}
