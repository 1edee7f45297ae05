package rest

import (
	"fmt"
	"maps"
	"math/big"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

// attribute is what this package needs of an attribute of a schema.
type attribute interface {
	GetType() attr.Type
	IsComputed() bool
	IsOptional() bool
	IsRequired() bool
	IsWriteOnly() bool
}

// children returns the attributes of a nested attribute, or nil.
func children(of attribute) map[string]attribute {
	var found map[string]schema.Attribute
	switch of := of.(type) {
	case schema.SingleNestedAttribute:
		found = of.Attributes
	case schema.MapNestedAttribute:
		found = of.NestedObject.Attributes
	case schema.ListNestedAttribute:
		found = of.NestedObject.Attributes
	case schema.SetNestedAttribute:
		found = of.NestedObject.Attributes
	default:
		return nil
	}
	return widen(found)
}

func widen(from map[string]schema.Attribute) map[string]attribute {
	to := make(map[string]attribute, len(from))
	for name, value := range from {
		to[name] = value
	}
	return to
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// members returns the values of an object; none of a null or unknown one.
func members(of tftypes.Value) map[string]tftypes.Value {
	values := map[string]tftypes.Value{}
	if of.IsKnown() && !of.IsNull() {
		_ = of.As(&values)
	}
	return values
}

func elements(of tftypes.Value) []tftypes.Value {
	values := []tftypes.Value{}
	if of.IsKnown() && !of.IsNull() {
		_ = of.As(&values)
	}
	return values
}

// Plain returns a value as JSON would have it, by the names of attributes; nil for null and unknown.
func Plain(value tftypes.Value) any {
	if value.IsNull() || !value.IsKnown() {
		return nil
	}
	switch kind := value.Type(); {
	case kind.Is(tftypes.String):
		var text string
		_ = value.As(&text)
		return text
	case kind.Is(tftypes.Bool):
		var is bool
		_ = value.As(&is)
		return is
	case kind.Is(tftypes.Number):
		number := new(big.Float)
		_ = value.As(&number)
		if whole, accuracy := number.Int64(); accuracy == big.Exact {
			return whole
		}
		fraction, _ := number.Float64()
		return fraction
	case kind.Is(tftypes.List{}), kind.Is(tftypes.Set{}), kind.Is(tftypes.Tuple{}):
		list := []any{}
		for _, element := range elements(value) {
			list = append(list, Plain(element))
		}
		return list
	default:
		object := Object{}
		for name, member := range members(value) {
			object[name] = Plain(member)
		}
		return object
	}
}

// typed returns a plain value as a value of Terraform.
func typed(kind tftypes.Type, from any) (tftypes.Value, error) {
	if from == nil {
		return tftypes.NewValue(kind, nil), nil
	}
	switch {
	case kind.Is(tftypes.Number):
		number := new(big.Float)
		switch from := from.(type) {
		case float64:
			number.SetFloat64(from)
		case int64:
			number.SetInt64(from)
		default:
			return tftypes.Value{}, fmt.Errorf("control answered %s where a number is expected", sort(from))
		}
		return tftypes.NewValue(kind, number), nil
	case kind.Is(tftypes.String):
		if _, ok := from.(string); !ok {
			return tftypes.Value{}, fmt.Errorf("control answered %s where a text is expected", sort(from))
		}
	case kind.Is(tftypes.Bool):
		if _, ok := from.(bool); !ok {
			return tftypes.Value{}, fmt.Errorf("control answered %s where true or false is expected", sort(from))
		}
	default:
		return tftypes.Value{}, fmt.Errorf("control answered %s where a list or an object is expected", sort(from))
	}
	return tftypes.NewValue(kind, from), nil
}

// names returns the keys of a map in order.
func names[V any](of map[string]V) []string { return slices.Sorted(maps.Keys(of)) }

// sort names what a value is, for messages. The value itself may be a secret, or long.
func sort(value any) string {
	switch value.(type) {
	case nil:
		return "nothing"
	case string:
		return "a text"
	case bool:
		return "true or false"
	case []any:
		return "a list"
	case Object:
		return "an object"
	}
	return "a number"
}
