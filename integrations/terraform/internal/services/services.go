// Package services writes the file of `sallyport run`.
package services

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/sallyport/sallyport/integrations/terraform/internal/arguments"
)

// maxServices is how many services a file may have.
const maxServices = 1024

// File is what a file has. A service has the long options of `connect` and `tunnel connect`.
type File struct {
	Services   []map[string]any `arg:"services"`
	Transport  string           `arg:"transport"`
	Congestion string           `arg:"congestion"`
	MPTCP      *bool            `arg:"mptcp"`
	Link       []string         `arg:"link"`
	Redundancy *int64           `arg:"redundancy"`
	Region     string           `arg:"region"`
	Keepalive  string           `arg:"keepalive"`
	MaxLegs    *int64           `arg:"max_legs"`
}

// Keys are what a service may have. A test compares them with the program.
var Keys = strings.Fields(`
	address affinity allow allowed-email-addresses allowed-email-domains alpn amplification-guard bytes-per-second cloudauth
	connect-timeout deny dial domain health-check health-interval health-timeout healthy-threshold host host-header
	identity-provider label max-connections max-rps name name-label no-amplification-guard no-cloudauth no-passthrough
	not-protected origin-ca origin-max-connections origin-pin origin-protocol origin-server-name passthrough password path
	policy port protected proxy-protocol public-port queue region-max-connections region-max-rps region-shared-capacity
	remove-request-header remove-response-header request-header requests-per-second response-header rewrite-path
	session-minutes shared-capacity socket-id strip-path tunnel-credential tunnel-id type unhealthy-threshold username`)

// TOML returns the text of the file, or an error in one sentence.
func (f File) TOML() (string, error) {
	if len(f.Services) == 0 {
		return "", fmt.Errorf("`services` is missing: write a list with one object for each service")
	}
	if len(f.Services) > maxServices {
		return "", fmt.Errorf("there are %d services: a file has at most %d", len(f.Services), maxServices)
	}
	names := map[any]bool{}
	services := make([]map[string]any, 0, len(f.Services))
	for index, from := range f.Services {
		service, err := service(index, from)
		if err != nil {
			return "", err
		}
		if name := service["name"]; name != nil && names[name] {
			return "", fmt.Errorf("`services` has the name %q twice", name)
		}
		names[service["name"]] = true
		services = append(services, service)
	}
	var text bytes.Buffer
	encoder := toml.NewEncoder(&text)
	encoder.Indent = ""
	for _, part := range []map[string]any{f.settings(), {"service": services}} {
		if err := encoder.Encode(part); err != nil {
			return "", fmt.Errorf("the services cannot be written: %w", err)
		}
	}
	return text.String(), nil
}

func service(index int, from map[string]any) (map[string]any, error) {
	to := map[string]any{}
	for _, key := range slices.Sorted(maps.Keys(from)) {
		name := strings.ReplaceAll(key, "_", "-")
		if !slices.Contains(Keys, name) {
			if strings.Contains(key, "_") {
				return nil, arguments.Unknown(fmt.Sprintf("services[%d].%s", index, key), key, underscored())
			}
			return nil, arguments.Unknown(fmt.Sprintf("services[%d].%s", index, key), name, Keys)
		}
		if _, isTwice := to[name]; isTwice {
			return nil, fmt.Errorf("services[%d] has %q twice, with hyphens and with underscores", index, name)
		}
		if err := isValue(from[key]); err != nil {
			return nil, fmt.Errorf("services[%d].%s %w", index, key, err)
		}
		to[name] = from[key]
	}
	if to["port"] == nil && to["address"] == nil && to["path"] == nil {
		return nil, fmt.Errorf("services[%d] has neither `port` nor `address`: one of them says where the service is", index)
	}
	return to, nil
}

func underscored() []string {
	names := make([]string, 0, len(Keys))
	for _, key := range Keys {
		names = append(names, strings.ReplaceAll(key, "-", "_"))
	}
	return names
}

// isValue checks that a value is a text, a number, a truth, or a list of these.
func isValue(value any) error {
	if items, ok := value.([]any); ok {
		for _, item := range items {
			if _, isList := item.([]any); isList {
				return fmt.Errorf("is a list of lists: write a list of texts")
			}
			if err := isValue(item); err != nil {
				return err
			}
		}
		return nil
	}
	if _, isObject := value.(map[string]any); isObject {
		return fmt.Errorf("is an object: write a text, a number, a truth or a list")
	}
	return nil
}

func (f File) settings() map[string]any {
	settings := map[string]any{}
	for name, text := range map[string]string{"transport": f.Transport, "congestion": f.Congestion, "region": f.Region, "keepalive": f.Keepalive} {
		if text != "" {
			settings[name] = text
		}
	}
	if f.MPTCP != nil {
		settings["mptcp"] = *f.MPTCP
	}
	if len(f.Link) > 0 {
		settings["link"] = f.Link
	}
	if f.Redundancy != nil {
		settings["redundancy"] = *f.Redundancy
	}
	if f.MaxLegs != nil {
		settings["max-legs"] = *f.MaxLegs
	}
	return settings
}
