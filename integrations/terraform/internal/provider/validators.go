package provider

import (
	"context"
	"fmt"
	"regexp"

	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
)

// rps checks a rate: a whole number, or auto.
type rps struct{}

var rate = regexp.MustCompile(`^(auto|[1-9][0-9]{0,6})$`)

// Description says what is good.
func (rps) Description(context.Context) string { return "a whole number from 1, or auto" }

// MarkdownDescription says what is good.
func (r rps) MarkdownDescription(ctx context.Context) string { return r.Description(ctx) }

// ValidateString checks a value.
func (rps) ValidateString(_ context.Context, request validator.StringRequest, response *validator.StringResponse) {
	if text := request.ConfigValue.ValueString(); !request.ConfigValue.IsUnknown() && !request.ConfigValue.IsNull() && !rate.MatchString(text) {
		response.Diagnostics.AddAttributeError(request.Path, "Wrong rate", fmt.Sprintf("%q is neither a whole number from 1 to 1000000 nor auto.", text))
	}
}

// id checks that a text is the id of an object, which control answers with. The API also takes names, and a plan with a
// name would not fit the answer.
type id struct{ noun string }

var uuid = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// Description says what is good.
func (i id) Description(context.Context) string { return "the id of a " + i.noun }

// MarkdownDescription says what is good.
func (i id) MarkdownDescription(ctx context.Context) string { return i.Description(ctx) }

// ValidateString checks a value.
func (i id) ValidateString(_ context.Context, request validator.StringRequest, response *validator.StringResponse) {
	if text := request.ConfigValue.ValueString(); !request.ConfigValue.IsUnknown() && !request.ConfigValue.IsNull() && !uuid.MatchString(text) {
		response.Diagnostics.AddAttributeError(request.Path, "Wrong id", fmt.Sprintf(
			"%q is no id of a %[2]s: write `sallyport_%[2]s.NAME.id`, where NAME is what the resource is called here.", text, i.noun))
	}
}

// jsonObject checks that a text is a JSON object.
type jsonObject struct{}

// Description says what is good.
func (jsonObject) Description(context.Context) string { return "a JSON object" }

// MarkdownDescription says what is good.
func (j jsonObject) MarkdownDescription(ctx context.Context) string { return j.Description(ctx) }

// ValidateString checks a value.
func (jsonObject) ValidateString(_ context.Context, request validator.StringRequest, response *validator.StringResponse) {
	if request.ConfigValue.IsUnknown() || request.ConfigValue.IsNull() {
		return
	}
	if _, err := encodeJSON(request.ConfigValue.ValueString()); err != nil {
		response.Diagnostics.AddAttributeError(request.Path, "Wrong JSON", "The text is not good: "+err.Error()+".")
	}
}
