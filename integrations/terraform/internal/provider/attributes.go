package provider

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/booldefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/int64default"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringdefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

// stable returns a text that control chooses once.
func stable(description string) schema.StringAttribute {
	return schema.StringAttribute{
		Computed: true, MarkdownDescription: description,
		PlanModifiers: []planmodifier.String{stringplanmodifier.UseStateForUnknown()},
	}
}

// required returns a text that must be there.
func required(description string) schema.StringAttribute {
	return schema.StringAttribute{Required: true, MarkdownDescription: description}
}

// optional returns a text that may be there.
func optional(description string) schema.StringAttribute {
	return schema.StringAttribute{Optional: true, MarkdownDescription: description}
}

// parent returns the id of the object that another belongs to for ever.
func parent(description string) schema.StringAttribute {
	return schema.StringAttribute{
		Required: true, MarkdownDescription: description,
		PlanModifiers: []planmodifier.String{stringplanmodifier.RequiresReplace()},
	}
}

// parentID returns the id, and no other name, of the object that another belongs to for ever.
func parentID(description, noun string) schema.StringAttribute {
	attribute := parent(description)
	attribute.Validators = []validator.String{id{noun}}
	return attribute
}

// choice returns a text of a few; the first of them is the default.
func choice(description string, values ...string) schema.StringAttribute {
	return schema.StringAttribute{
		Optional: true, Computed: true,
		MarkdownDescription: fmt.Sprintf("%s One of %s; %s when absent.", description, quoted(values), "`"+values[0]+"`"),
		Default:             stringdefault.StaticString(values[0]),
		Validators:          []validator.String{stringvalidator.OneOf(values...)},
	}
}

func quoted(values []string) string {
	parts := make([]string, 0, len(values))
	for _, value := range values {
		parts = append(parts, "`"+value+"`")
	}
	return strings.Join(parts, ", ")
}

// number returns a whole number that may be there.
func number(description string) schema.Int64Attribute {
	return schema.Int64Attribute{Optional: true, MarkdownDescription: description}
}

// numberOr returns a whole number with a default.
func numberOr(value int64, description string) schema.Int64Attribute {
	return schema.Int64Attribute{
		Optional: true, Computed: true, Default: int64default.StaticInt64(value),
		MarkdownDescription: fmt.Sprintf("%s `%d` when absent.", description, value),
	}
}

// flagOr returns a truth with a default.
func flagOr(value bool, description string) schema.BoolAttribute {
	return schema.BoolAttribute{
		Optional: true, Computed: true, Default: booldefault.StaticBool(value),
		MarkdownDescription: fmt.Sprintf("%s `%t` when absent.", description, value),
	}
}

// texts returns a set of texts.
func texts(description string) schema.SetAttribute {
	return schema.SetAttribute{Optional: true, ElementType: types.StringType, MarkdownDescription: description}
}

// labels returns the labels of an object.
func labels() schema.MapAttribute {
	return schema.MapAttribute{
		Optional: true, ElementType: types.StringType,
		MarkdownDescription: "Labels to find it again by: at most 32 keys with values.",
	}
}

// capacity returns what an origin can carry.
func capacity(description string) schema.SingleNestedAttribute {
	return schema.SingleNestedAttribute{
		Optional: true, MarkdownDescription: description,
		Attributes: map[string]schema.Attribute{
			"max_connections": number("The most requests, connections or flows at once."),
			"max_rps": schema.StringAttribute{
				Optional:            true,
				MarkdownDescription: "The most new requests, connections or flows in a second, or `auto`: as many as the origin is seen to answer without getting slow.",
				Validators:          []validator.String{rps{}},
			},
			"shared": optional("All origins of the organisation with this name have these limits together."),
		},
	}
}

// encodeRPS makes a number of "100", and leaves "auto".
func encodeRPS(value any) (any, error) {
	if value == "auto" {
		return value, nil
	}
	number, err := strconv.ParseInt(fmt.Sprint(value), 10, 64)
	if err != nil {
		return nil, fmt.Errorf("%q is neither a whole number nor auto", value)
	}
	return number, nil
}

// decodeRPS makes "100" of a number, and leaves "auto".
func decodeRPS(value any) (any, error) {
	if number, ok := value.(float64); ok {
		return strconv.FormatInt(int64(number), 10), nil
	}
	return value, nil
}
