package rest

import (
	"context"
	"fmt"
	"slices"

	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

// state returns what control answered as a state. The prior values are those of the plan, or of the state before: they
// decide between absent and empty, where the API knows no difference, and keep the words of their owner.
func (k *Kind) state(ctx context.Context, answer Object, prior tftypes.Value) (tftypes.Value, error) {
	kind := k.Schema.Type().TerraformType(ctx)
	return k.object(ctx, widen(k.Schema.Attributes), "", kind, answer, prior)
}

// stateAfter returns the state after a creation or change. Shared attributes are as planned, whatever others did
// meanwhile: the next plan sees it.
func (k *Kind) stateAfter(ctx context.Context, answer Object, plan tftypes.Value) (tftypes.Value, error) {
	state, err := k.state(ctx, answer, plan)
	if err != nil {
		return state, err
	}
	values, planned := members(state), members(plan)
	for name, field := range k.Fields {
		if value, ok := planned[name]; ok && field.IsShared && value.IsFullyKnown() {
			values[name] = value
		}
	}
	return tftypes.NewValue(state.Type(), values), nil
}

// withoutLast returns a state in which what Complete should have done is as before.
func (k *Kind) withoutLast(state, prior tftypes.Value) tftypes.Value {
	values, before := members(state), members(prior)
	for name, field := range k.Fields {
		if value, ok := before[name]; ok && field.IsLast {
			values[name] = value
		}
	}
	return tftypes.NewValue(state.Type(), values)
}

func (k *Kind) object(ctx context.Context, attributes map[string]attribute, path string, kind tftypes.Type, answer Object, prior tftypes.Value) (tftypes.Value, error) {
	before := members(prior)
	values := make(map[string]tftypes.Value, len(attributes))
	for _, name := range names(attributes) {
		of := attributes[name]
		inner := join(path, name)
		value, err := k.value(ctx, of, inner, answer[k.fieldName(inner, name)], before[name])
		if err != nil {
			return tftypes.Value{}, fmt.Errorf("%s: %w", inner, err)
		}
		values[name] = value
	}
	return tftypes.NewValue(kind, values), nil
}

// value returns the value of one attribute for what control answered in its field.
func (k *Kind) value(ctx context.Context, of attribute, path string, answer any, prior tftypes.Value) (tftypes.Value, error) {
	special := k.Fields[path]
	kind := of.GetType().TerraformType(ctx)
	hasPrior := prior.Type() != nil && prior.IsKnown() && !prior.IsNull()
	null := tftypes.NewValue(kind, nil)
	switch {
	case of.IsWriteOnly():
		return null, nil
	case special.Local && hasPrior:
		return prior, nil
	case special.Local:
		return typed(kind, special.Initial)
	case hasPrior && isEmpty(Plain(prior)) && isEmpty(answer):
		return prior, nil
	case answer == nil:
		return null, nil
	case !hasPrior && isEmpty(answer) && !of.IsComputed() && !of.IsRequired():
		return null, nil
	}
	if special.Decode != nil {
		var err error
		if answer, err = special.Decode(answer); err != nil {
			return null, err
		}
	}
	if special.IsSame != nil && hasPrior && special.IsSame(Plain(prior), answer) {
		return prior, nil
	}
	if nested := children(of); nested != nil {
		return k.nested(ctx, nested, path, kind, answer, prior, hasPrior)
	}
	switch answer := answer.(type) {
	case []any:
		if kind.Is(tftypes.Map{}) {
			return null, fmt.Errorf("control answered %s where an object is expected", sort(answer))
		}
		list := make([]tftypes.Value, 0, len(answer))
		for _, item := range answer {
			element, err := typed(elementType(kind), item)
			if err != nil {
				return null, err
			}
			if !kind.Is(tftypes.Set{}) || !slices.ContainsFunc(list, element.Equal) {
				list = append(list, element)
			}
		}
		return tftypes.NewValue(kind, list), nil
	case Object:
		if !kind.Is(tftypes.Map{}) {
			return null, fmt.Errorf("control answered %s where no object is expected", sort(answer))
		}
		entries := make(map[string]tftypes.Value, len(answer))
		for key, item := range answer {
			element, err := typed(elementType(kind), item)
			if err != nil {
				return null, err
			}
			entries[key] = element
		}
		return tftypes.NewValue(kind, entries), nil
	}
	return typed(kind, answer)
}

func (k *Kind) nested(ctx context.Context, attributes map[string]attribute, path string, kind tftypes.Type, answer any, prior tftypes.Value, hasPrior bool) (tftypes.Value, error) {
	null := tftypes.NewValue(kind, nil)
	switch {
	case kind.Is(tftypes.List{}), kind.Is(tftypes.Set{}):
		items, ok := answer.([]any)
		if !ok {
			return null, fmt.Errorf("control answered %s where a list is expected", sort(answer))
		}
		before := elements(prior)
		list := make([]tftypes.Value, 0, len(items))
		for index, item := range items {
			var beside tftypes.Value
			if index < len(before) {
				beside = before[index]
			}
			fields, _ := item.(Object)
			element, err := k.object(ctx, attributes, path, elementType(kind), fields, beside)
			if err != nil {
				return null, err
			}
			list = append(list, element)
		}
		return tftypes.NewValue(kind, list), nil
	case kind.Is(tftypes.Map{}):
		items, ok := answer.(Object)
		if !ok {
			return null, fmt.Errorf("control answered %s where an object is expected", sort(answer))
		}
		before := members(prior)
		entries := make(map[string]tftypes.Value, len(items))
		for key, item := range items {
			fields, _ := item.(Object)
			element, err := k.object(ctx, attributes, path, elementType(kind), fields, before[key])
			if err != nil {
				return null, err
			}
			entries[key] = element
		}
		return tftypes.NewValue(kind, entries), nil
	}
	fields, ok := answer.(Object)
	if !ok {
		return null, fmt.Errorf("control answered %s where an object is expected", sort(answer))
	}
	value, err := k.object(ctx, attributes, path, kind, fields, prior)
	if err != nil || hasPrior {
		return value, err
	}
	for _, member := range members(value) {
		if !member.IsNull() {
			return value, nil
		}
	}
	return null, nil // an object without content is as none
}

func elementType(of tftypes.Type) tftypes.Type {
	switch of := of.(type) {
	case tftypes.List:
		return of.ElementType
	case tftypes.Set:
		return of.ElementType
	case tftypes.Map:
		return of.ElementType
	}
	return tftypes.DynamicPseudoType
}

// isEmpty says whether a plain value is null, or an object or list without content.
func isEmpty(value any) bool {
	switch value := value.(type) {
	case nil:
		return true
	case string:
		return value == ""
	case []any:
		return len(value) == 0
	case Object:
		for _, member := range value {
			if !isEmpty(member) {
				return false
			}
		}
		return true
	}
	return false
}

// differences names the attributes whose known values in want are others in have.
func differences(want, have tftypes.Value) []string {
	wanted, found := members(want), members(have)
	different := []string{}
	for _, name := range names(wanted) {
		if wanted[name].IsFullyKnown() && !wanted[name].Equal(found[name]) {
			different = append(different, name)
		}
	}
	return different
}
