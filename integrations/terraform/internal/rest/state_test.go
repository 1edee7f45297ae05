package rest

import (
	"context"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

// kind has an attribute of every sort.
func kind() *Kind {
	text := schema.StringAttribute{Optional: true}
	return &Kind{
		Item: "/v1/parents/{parent}/things/{id}",
		Schema: schema.Schema{Attributes: map[string]schema.Attribute{
			"id":     schema.StringAttribute{Computed: true},
			"parent": schema.StringAttribute{Required: true},
			"text":   text,
			"words":  schema.SetAttribute{Optional: true, ElementType: types.StringType},
			"order":  schema.ListAttribute{Optional: true, ElementType: types.StringType},
			"labels": schema.MapAttribute{Optional: true, ElementType: types.StringType},
			"rules": schema.SingleNestedAttribute{Optional: true, Attributes: map[string]schema.Attribute{
				"count": schema.Int64Attribute{Optional: true}, "on": schema.BoolAttribute{Optional: true},
			}},
			"login": schema.SingleNestedAttribute{Optional: true, Attributes: map[string]schema.Attribute{
				"user": text, "password_wo": schema.StringAttribute{Optional: true, WriteOnly: true},
				"password_wo_version": schema.Int64Attribute{Optional: true, Computed: true},
			}},
			"regions": schema.MapNestedAttribute{Optional: true, NestedObject: schema.NestedAttributeObject{
				Attributes: map[string]schema.Attribute{"dial": schema.Int64Attribute{Optional: true}},
			}},
		}},
		Fields: map[string]Field{
			"text":                      {IsSame: func(mine, theirs any) bool { return strings.EqualFold(mine.(string), theirs.(string)) }},
			"login.password_wo":         {Name: "password"},
			"login.password_wo_version": {Local: true, Initial: int64(1)},
		},
	}
}

func parsed(t *testing.T, text string) Object {
	t.Helper()
	object := Object{}
	if err := json.Unmarshal([]byte(text), &object); err != nil {
		t.Fatal(err)
	}
	return object
}

// value makes a value of the kind from JSON with the names of attributes, as a configuration has it.
func value(t *testing.T, of tftypes.Type, from any) tftypes.Value {
	t.Helper()
	switch of := of.(type) {
	case tftypes.Object:
		fields, ok := from.(Object)
		if !ok {
			return tftypes.NewValue(of, nil)
		}
		values := map[string]tftypes.Value{}
		for name, kind := range of.AttributeTypes {
			values[name] = value(t, kind, fields[name])
		}
		return tftypes.NewValue(of, values)
	case tftypes.Map:
		fields, ok := from.(Object)
		if !ok {
			return tftypes.NewValue(of, nil)
		}
		values := map[string]tftypes.Value{}
		for name, item := range fields {
			values[name] = value(t, of.ElementType, item)
		}
		return tftypes.NewValue(of, values)
	case tftypes.List, tftypes.Set:
		items, ok := from.([]any)
		if !ok {
			return tftypes.NewValue(of, nil)
		}
		values := []tftypes.Value{}
		for _, item := range items {
			values = append(values, value(t, elementType(of), item))
		}
		return tftypes.NewValue(of, values)
	}
	made, err := typed(of, from)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// bare leaves out what is null.
func bare(of any) any {
	object, ok := of.(Object)
	if !ok {
		return of
	}
	kept := Object{}
	for name, member := range object {
		if member != nil {
			kept[name] = bare(member)
		}
	}
	return kept
}

func (k *Kind) typeOf() tftypes.Type { return k.Schema.Type().TerraformType(context.Background()) }

func TestStates(t *testing.T) {
	for _, one := range []struct{ name, prior, answer, want string }{
		{"an import of nothing special", `null`,
			`{"id": "i", "parent": "p", "labels": {}, "rules": {}, "words": [], "login": null, "regions": {}}`,
			`{"id": "i", "parent": "p"}`},
		{"empty stays empty where it was written", `{"labels": {}, "words": [], "rules": {}, "regions": {}}`, `{"parent": "p"}`,
			`{"parent": "p", "labels": {}, "words": [], "rules": {}, "regions": {}}`},
		{"what went is gone", `{"parent": "p", "text": "a", "labels": {"a": "b"}, "rules": {"count": 1}}`, `{"parent": "p", "rules": {}}`,
			`{"parent": "p", "rules": {}}`},
		{"words of their owner", `{"text": "Shop"}`, `{"text": "shop"}`, `{"text": "Shop"}`},
		{"other words", `{"text": "Shop"}`, `{"text": "shops"}`, `{"text": "shops"}`},
		{"a set has each once", `null`, `{"words": ["a", "b", "a"], "order": ["a", "b", "a"]}`, `{"words": ["a", "b"], "order": ["a", "b", "a"]}`},
		{"a secret is never kept", `{"login": {"user": "u", "password_wo": "secret", "password_wo_version": 7}}`, `{"login": {"user": "v", "password": "secret"}}`,
			`{"login": {"user": "v", "password_wo_version": 7}}`},
		{"an import has the first version", `null`, `{"login": {"user": "u"}}`, `{"login": {"user": "u", "password_wo_version": 1}}`},
		{"empty objects in maps count", `null`, `{"regions": {"eu": {}, "us": {"dial": 5}}}`, `{"regions": {"eu": {}, "us": {"dial": 5}}}`},
	} {
		k := kind()
		var prior any
		if err := json.Unmarshal([]byte(one.prior), &prior); err != nil {
			t.Fatal(err)
		}
		state, err := k.state(context.Background(), parsed(t, one.answer), value(t, k.typeOf(), prior))
		if err != nil {
			t.Fatalf("%s: %v", one.name, err)
		}
		found, _ := json.Marshal(bare(Plain(state)))
		want, _ := json.Marshal(parsed(t, one.want))
		if string(found) != string(want) {
			t.Errorf("%s: %s, not %s", one.name, found, want)
		}
	}
}

func TestAnswersOfOtherTypes(t *testing.T) {
	for _, answer := range []string{`{"text": 1}`, `{"rules": [1]}`, `{"words": "x"}`, `{"labels": "x"}`, `{"order": {"a": "b"}}`, `{"labels": ["a"]}`, `{"text": {"a": 1}}`, `{"rules": {"count": "x"}}`, `{"rules": {"on": "x"}}`, `{"regions": 5}`, `{"words": [1]}`} {
		k := kind()
		if _, err := k.state(context.Background(), parsed(t, answer), tftypes.NewValue(k.typeOf(), nil)); err == nil || !strings.Contains(err.Error(), "control answered") {
			t.Errorf("%s: %v", answer, err)
		}
	}
}

func TestRequests(t *testing.T) {
	k := kind()
	before := value(t, k.typeOf(), parsed(t, `{"id": "i", "parent": "p", "text": "a", "labels": {"a": "b"}, "login": {"user": "u", "password_wo_version": 1}}`))
	plan := value(t, k.typeOf(), parsed(t, `{"id": "i", "parent": "p", "labels": {"a": "c"}, "login": {"user": "u", "password_wo_version": 2}, "regions": {"eu": {"dial": 5}}}`))
	config := value(t, k.typeOf(), parsed(t, `{"parent": "p", "labels": {"a": "c"}, "login": {"user": "u", "password_wo": "secret", "password_wo_version": 2}, "regions": {"eu": {"dial": 5}}}`))
	body, err := k.body(widen(k.Schema.Attributes), "", plan, config)
	if err != nil {
		t.Fatal(err)
	}
	login := Object{"user": "u", "password": "secret"}
	regions := Object{"eu": Object{"dial": int64(5)}}
	if want := (Object{"labels": Object{"a": "c"}, "login": login, "regions": regions}); !reflect.DeepEqual(body, want) {
		t.Errorf("a creation sends %v, not %v", body, want)
	}
	changes, err := k.changes(before, plan, config)
	if err != nil {
		t.Fatal(err)
	}
	if want := (Object{"text": nil, "labels": Object{"a": "c"}, "login": login, "regions": regions}); !reflect.DeepEqual(changes, want) {
		t.Errorf("a change sends %v, not %v", changes, want)
	}
	if none, err := k.changes(plan, plan, config); err != nil || len(none) > 0 {
		t.Errorf("no change sends %v, %v", none, err)
	}
}
