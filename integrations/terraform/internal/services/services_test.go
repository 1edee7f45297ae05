package services_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"

	"github.com/sallyport/sallyport/integrations/terraform/internal/acctest"
	"github.com/sallyport/sallyport/integrations/terraform/internal/arguments"
	"github.com/sallyport/sallyport/integrations/terraform/internal/services"
)

func program(t *testing.T) string {
	t.Helper()
	path, err := acctest.Program()
	if err != nil {
		if os.Getenv("SALLYPORT_TERRAFORM_REQUIRED") != "" {
			t.Fatal(err)
		}
		t.Skipf("skipped: %v", err)
	}
	return path
}

// TestKeysAreThoseOfTheProgram compares the keys with the help of the commands.
func TestKeysAreThoseOfTheProgram(t *testing.T) {
	elsewhere := strings.Fields("keepalive redundancy region max-legs transport congestion mptcp link api ca token organisation proxy output color verbose help password-stdin inspect inspect-keep no-inspect plain")
	found := map[string]bool{}
	for _, command := range [][]string{{"connect", "--help"}, {"tunnel", "connect", "--help"}} {
		text, err := exec.Command(program(t), command...).Output()
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range regexp.MustCompile(`(?m)^\s+(?:-\w, )?--([a-z-]+)( [<\[]|\s|$)`).FindAllStringSubmatch(string(text), -1) {
			if !slices.Contains(elsewhere, match[1]) && match[1] != "listen-quic" && match[1] != "cloudauth-" {
				found[match[1]] = true
			}
		}
	}
	for _, key := range services.Keys {
		if !found[key] {
			t.Errorf("the commands have no --%s", key)
		}
		delete(found, key)
	}
	for key := range found {
		t.Errorf("services have no key %q, and the commands have --%s", key, key)
	}
}

func write(t *testing.T, argument map[string]any) string {
	t.Helper()
	var file services.File
	if err := arguments.Decode(argument, &file); err != nil {
		t.Fatal(err)
	}
	text, err := file.TOML()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestFile has the program judge a file with everything.
func TestFile(t *testing.T) {
	text := write(t, map[string]any{
		"redundancy": int64(2), "link": []any{"eth0", "wwan0,metered"}, "mptcp": false, "max_legs": int64(7), "keepalive": "5s", "region": "eu", "congestion": nil,
		"services": []any{
			map[string]any{"name": "shop", "port": int64(8000), "allow": []any{"192.0.2.0/24"}, "max_rps": "auto", "type": nil},
			map[string]any{"name": "database", "socket_id": "wandering-shape-7752", "tunnel-id": "6d1f6e62-2d21-4b1a-b5c8-6b9f5d4b0c11", "tunnel_credential": "spc_x", "port": int64(5432)},
		},
	})
	file := filepath.Join(t.TempDir(), "services.toml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if answer, err := exec.Command(program(t), "run", "--check", file).CombinedOutput(); err != nil {
		t.Fatalf("%s\n%s", answer, text)
	}
	if !strings.HasPrefix(text, "keepalive = \"5s\"\nlink = [\"eth0\", \"wwan0,metered\"]\nmax-legs = 7\nmptcp = false\nredundancy = 2\nregion = \"eu\"\n") {
		t.Errorf("the settings are not first:\n%s", text)
	}
}

// Nasty are texts that must come through every form of quoting.
var nasty = []string{`"quoted" 'twice'`, "two\nlines\r\n\ttab", "$(reboot) `reboot` ${HOME}", `back\slash\n`, "ünïcode 🦀 \u2028 \u0085", "#comment", "'''", `"""`, "yes", "0123", " ", "[[service]]"}

// TestTextsComeThrough reads texts back that look like TOML.
func TestTextsComeThrough(t *testing.T) {
	for _, text := range nasty {
		var read struct {
			Service []struct{ Username string }
		}
		written := write(t, map[string]any{"services": []any{map[string]any{"port": int64(1), "username": text}}})
		if err := toml.Unmarshal([]byte(written), &read); err != nil || read.Service[0].Username != text {
			t.Errorf("%q became %q: %v", text, written, err)
		}
	}
}

// TestRefusals has each wrong argument refused with the words that help.
func TestRefusals(t *testing.T) {
	one := func(service map[string]any) map[string]any { return map[string]any{"services": []any{service}} }
	many := make([]any, 1025)
	for index := range many {
		many[index] = map[string]any{"port": int64(1)}
	}
	for words, argument := range map[string]any{
		"is no object":                          "text",
		"`services` is missing":                 map[string]any{},
		`is "services" meant?`:                  map[string]any{"service": []any{}},
		`"services[0].prot": is "port"`:         one(map[string]any{"prot": int64(1)}),
		`is "socket_id" meant?`:                 one(map[string]any{"socket_idd": "x"}),
		"the fields are":                        one(map[string]any{"something-else-wholly": "x"}),
		"neither `port` nor `address`":          one(map[string]any{"name": "x"}),
		"with hyphens and with underscores":     one(map[string]any{"port": int64(1), "max-rps": int64(1), "max_rps": int64(1)}),
		"services[0].allow is an object":        one(map[string]any{"port": int64(1), "allow": map[string]any{}}),
		"a list of lists":                       one(map[string]any{"port": int64(1), "allow": []any{[]any{}}}),
		"at most 1024":                          map[string]any{"services": many},
		`the name "a" twice`:                    map[string]any{"services": []any{map[string]any{"name": "a", "port": int64(1)}, map[string]any{"name": "a", "port": int64(2)}}},
		"`redundancy` is a text where a number": map[string]any{"redundancy": "two"},
	} {
		var file services.File
		err := arguments.Decode(argument, &file)
		if err == nil {
			_, err = file.TOML()
		}
		if err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%q is not what is said: %v", words, err)
		}
	}
}
