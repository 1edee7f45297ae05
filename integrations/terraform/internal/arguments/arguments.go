// Package arguments reads the one object that functions of the provider take.
package arguments

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/agext/levenshtein"
	"github.com/go-viper/mapstructure/v2"
)

// maxDistance is how many letters a wrong name may be away from the one that is suggested.
const maxDistance = 3

// Decode fills a struct with the fields of an object, by the tags `arg:"NAME"`. Fields that are null are absent. It
// returns an error in one sentence for a field that nobody knows, and for a value of another kind.
func Decode(from any, into any) error {
	values, ok := withoutNulls(from).(map[string]any)
	if !ok {
		return fmt.Errorf("the argument is no object: write { … } with these fields: %s", quoted(fieldsOf(reflect.TypeOf(into).Elem())))
	}
	var found mapstructure.Metadata
	decoder, err := mapstructure.NewDecoder(&mapstructure.DecoderConfig{
		Metadata: &found, Result: into, TagName: "arg", Squash: true,
		MatchName: func(key, field string) bool { return key == field },
	})
	if err != nil {
		return err
	}
	if err := decoder.Decode(values); err != nil {
		return wrongKind(err)
	}
	if len(found.Unused) > 0 {
		slices.Sort(found.Unused)
		return unknown(found.Unused[0], reflect.TypeOf(into).Elem())
	}
	return nil
}

// wrongKind says which value is of another kind than it should be.
func wrongKind(err error) error {
	var at *mapstructure.DecodeError
	var kind *mapstructure.UnconvertibleTypeError
	if !errors.As(err, &at) {
		return err
	}
	if errors.As(at, &kind) {
		return fmt.Errorf("`%s` is %s where %s is expected", at.Name(), kindOf(reflect.TypeOf(kind.Value)), kindOf(kind.Expected.Type()))
	}
	line, _, _ := strings.Cut(at.Unwrap().Error(), "\n")
	if strings.Contains(line, "must be an array or slice") {
		return fmt.Errorf("`%s` is no list: write [ … ]", at.Name())
	}
	if strings.Contains(line, "expected a map") {
		return fmt.Errorf("`%s` is no object: write { … }", at.Name())
	}
	return fmt.Errorf("`%s`: %s", at.Name(), line)
}

// kindOf says how a configuration calls values of a type.
func kindOf(of reflect.Type) string {
	switch of.Kind() {
	case reflect.Pointer:
		return kindOf(of.Elem())
	case reflect.String:
		return "a text"
	case reflect.Bool:
		return "a truth"
	case reflect.Slice:
		return "a list"
	case reflect.Map, reflect.Struct:
		return "an object"
	}
	return "a number"
}

// unknown says that there is no such field, and which one may be meant.
func unknown(path string, of reflect.Type) error {
	steps := strings.Split(path, ".")
	for _, step := range steps[:len(steps)-1] {
		name, _, _ := strings.Cut(step, "[")
		if inner, ok := typeOf(of, name); ok {
			of = inner
		}
	}
	return Unknown(path, steps[len(steps)-1], fieldsOf(of))
}

// Unknown says that a field is not one of those that there are, and which one may be meant.
func Unknown(path, name string, there []string) error {
	if nearest := Nearest(name, there); nearest != "" {
		return fmt.Errorf("there is no field %q: is %q meant?", path, nearest)
	}
	return fmt.Errorf("there is no field %q: the fields are %s", path, quoted(there))
}

// Nearest returns the name that is nearest to a wrong one; "" where none is near.
func Nearest(name string, there []string) string {
	best, distance := "", maxDistance+1
	for _, candidate := range there {
		if d := levenshtein.Distance(name, candidate, nil); d < distance && d < len(candidate) {
			best, distance = candidate, d
		}
	}
	return best
}

func quoted(names []string) string {
	return "`" + strings.Join(names, "`, `") + "`"
}

// typeOf returns the type of the objects in a field.
func typeOf(of reflect.Type, name string) (reflect.Type, bool) {
	for _, field := range reflect.VisibleFields(of) {
		if field.Tag.Get("arg") == name {
			inner := field.Type
			for inner.Kind() == reflect.Pointer || inner.Kind() == reflect.Slice {
				inner = inner.Elem()
			}
			return inner, inner.Kind() == reflect.Struct
		}
	}
	return nil, false
}

func fieldsOf(of reflect.Type) []string {
	names := []string{}
	if of.Kind() == reflect.Struct {
		for _, field := range reflect.VisibleFields(of) {
			if name := field.Tag.Get("arg"); name != "" && !strings.HasPrefix(name, ",") {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return names
}

// withoutNulls leaves out what is null: such a field is as absent.
func withoutNulls(value any) any {
	switch value := value.(type) {
	case map[string]any:
		object := map[string]any{}
		for name, member := range value {
			if member != nil {
				object[name] = withoutNulls(member)
			}
		}
		return object
	case []any:
		items := []any{}
		for _, item := range value {
			if item != nil {
				items = append(items, withoutNulls(item))
			}
		}
		return items
	}
	return value
}
