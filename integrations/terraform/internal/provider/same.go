package provider

import (
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"time"
)

// Control writes some values in its own way: in lower case, or shorter. These functions say whether two mean the same.

// sameText says whether two texts are the same but for upper and lower case.
func sameText(mine, theirs any) bool {
	one, isText := mine.(string)
	other, isOther := theirs.(string)
	return isText && isOther && strings.EqualFold(one, other)
}

// sameTrimmed says whether two texts are the same but for blanks at their ends.
func sameTrimmed(mine, theirs any) bool {
	one, isText := mine.(string)
	other, isOther := theirs.(string)
	return isText && isOther && strings.TrimSpace(one) == strings.TrimSpace(other)
}

// samePrefix says whether two paths are the same but for a slash at their ends.
func samePrefix(mine, theirs any) bool {
	one, isText := mine.(string)
	other, isOther := theirs.(string)
	return isText && isOther && strings.TrimRight(one, "/") == strings.TrimRight(other, "/")
}

// sameWords says whether two sets of texts are the same but for upper and lower case.
func sameWords(mine, theirs any) bool { return sameSet(mine, theirs, strings.ToLower) }

// samePaths says whether two sets of paths are the same but for slashes at their ends.
func samePaths(mine, theirs any) bool {
	return sameSet(mine, theirs, func(path string) string { return strings.TrimRight(path, "/") })
}

// sameMoment says whether two times are the same, in whatever time zones.
func sameMoment(mine, theirs any) bool {
	one, err := time.Parse(time.RFC3339, fmt.Sprint(mine))
	other, wrong := time.Parse(time.RFC3339, fmt.Sprint(theirs))
	return err == nil && wrong == nil && one.Equal(other)
}

// samePlaces says whether two sets of networks, countries and autonomous systems are the same.
func samePlaces(mine, theirs any) bool { return sameSet(mine, theirs, place) }

func sameSet(mine, theirs any, write func(string) string) bool {
	return reflect.DeepEqual(members(mine, write), members(theirs, write))
}

func members(of any, write func(string) string) map[string]bool {
	set := map[string]bool{}
	for _, item := range list(of) {
		set[write(fmt.Sprint(item))] = true
	}
	return set
}

// place writes a network as control does.
func place(text string) string {
	if network, err := netip.ParsePrefix(text); err == nil {
		return network.String()
	}
	if address, err := netip.ParseAddr(text); err == nil {
		return address.String()
	}
	return strings.ToLower(text)
}

// document writes the rules of a policy as control does, as far as control changes them.
func document(value any, field string) any {
	switch value := value.(type) {
	case map[string]any:
		object := map[string]any{}
		for name, member := range value {
			if written := document(member, name); written != nil {
				object[name] = written
			}
		}
		return object
	case []any:
		if len(value) == 0 && field != "extensions" { // no extensions are others than those of the authority
			return nil
		}
		items := make([]any, 0, len(value))
		for _, item := range value {
			items = append(items, document(item, field))
		}
		return items
	case bool:
		if field == "anyone" && !value {
			return nil
		}
	case string:
		switch field {
		case "emails", "email_domains", "days":
			return strings.ToLower(value)
		case "methods":
			return strings.ToUpper(value)
		case "where":
			return place(value)
		case "not_before", "not_after":
			if moment, err := time.Parse(time.RFC3339, value); err == nil {
				return moment.UTC().Format(time.RFC3339)
			}
		}
	}
	return value
}
