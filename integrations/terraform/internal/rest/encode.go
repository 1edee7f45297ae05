package rest

import (
	"fmt"
	"strings"

	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

// body returns the fields of an object for a request: attributes that are null are left out. The config has the values
// of write-only attributes.
func (k *Kind) body(attributes map[string]attribute, path string, plan, config tftypes.Value) (Object, error) {
	planned, configured := members(plan), members(config)
	fields := Object{}
	for _, name := range names(attributes) {
		value, err := k.field(attributes[name], join(path, name), planned[name], configured[name])
		if err != nil {
			return nil, err
		}
		if value != nil {
			fields[k.fieldName(join(path, name), name)] = value
		}
	}
	return fields, nil
}

func (k *Kind) fieldName(path, name string) string {
	if other := k.Fields[path].Name; other != "" {
		return other
	}
	return name
}

// field returns the value of one field; nil for none.
func (k *Kind) field(of attribute, path string, plan, config tftypes.Value) (any, error) {
	special := k.Fields[path]
	if special.Local || (of.IsComputed() && !of.IsOptional()) || strings.Contains(k.Collection, "{"+path+"}") {
		return nil, nil
	}
	value := plan
	if of.IsWriteOnly() {
		value = config
	}
	if value.Type() == nil || value.IsNull() || !value.IsKnown() {
		return nil, nil
	}
	if special.Encode != nil {
		encoded, err := special.Encode(Plain(value))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		return encoded, nil
	}
	nested := children(of)
	if nested == nil {
		return Plain(value), nil
	}
	switch kind := value.Type(); {
	case kind.Is(tftypes.Map{}):
		configured := members(config)
		fields := Object{}
		for key, member := range members(value) {
			inner, err := k.body(nested, path, member, configured[key])
			if err != nil {
				return nil, err
			}
			fields[key] = inner
		}
		return fields, nil
	case kind.Is(tftypes.List{}), kind.Is(tftypes.Set{}):
		configured := elements(config)
		list := []any{}
		for index, element := range elements(value) {
			var beside tftypes.Value
			if index < len(configured) && kind.Is(tftypes.List{}) {
				beside = configured[index]
			}
			inner, err := k.body(nested, path, element, beside)
			if err != nil {
				return nil, err
			}
			list = append(list, inner)
		}
		return list, nil
	default:
		return k.body(nested, path, value, config)
	}
}

// changes returns the fields of a request that makes the state what is planned. A field that shall be absent is null.
func (k *Kind) changes(state, plan, config tftypes.Value) (Object, error) {
	attributes := widen(k.Schema.Attributes)
	before, planned, configured := members(state), members(plan), members(config)
	fields := Object{}
	for _, name := range names(attributes) {
		special := k.Fields[name]
		of := attributes[name]
		if special.Local || special.IsCreateOnly || (of.IsComputed() && !of.IsOptional()) || !planned[name].IsKnown() {
			continue
		}
		with := name
		if of.IsWriteOnly() {
			with = special.SentWith
		}
		isChanged := with != "" && !planned[with].Equal(before[with])
		if !isChanged && !special.IsChangeOnly {
			continue
		}
		value, err := k.field(of, name, planned[name], configured[name])
		if err != nil {
			return nil, err
		}
		if value == nil {
			value = special.Absent
		}
		if value != nil || !of.IsWriteOnly() {
			fields[k.fieldName(name, name)] = value
		}
	}
	return fields, nil
}
