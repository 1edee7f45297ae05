package cloudinit_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	userdata "github.com/sallyport/sallyport/integrations/cloud-init"
	"github.com/sallyport/sallyport/integrations/terraform/internal/arguments"
	"github.com/sallyport/sallyport/integrations/terraform/internal/cloudinit"
)

type object = map[string]any

const sha = "0000000000000000000000000000000000000000000000000000000000000000"

var fetched = object{"url": "https://downloads.example.com/sallyport-x86_64-linux", "sha256": sha}

var repository = object{"url": "https://packages.example.com/apt", "key": "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nx\n-----END PGP PUBLIC KEY BLOCK-----\n"}

func with(base object, more object) object {
	both := maps.Clone(base)
	maps.Copy(both, more)
	return both
}

var (
	edge    = object{"token": "spe_x", "region": "eu", "advertise": "192.0.2.10:443", "program": fetched}
	anycast = with(edge, object{"anycast": object{"allow": []any{"198.51.100.0/24", "2001:db8:a::/48"}}})
	origin  = object{"api": "https://api.example.com", "program": fetched, "services": []any{object{"socket_id": "wandering-shape-7752", "tunnel_id": "00000000-0000-0000-0000-000000000000", "tunnel_credential": "spc_x", "port": int64(8000)}}}
)

func makeEdge(argument object) (string, error) {
	var settings cloudinit.Edge
	if err := arguments.Decode(argument, &settings); err != nil {
		return "", err
	}
	return settings.UserData()
}

func makeOrigin(argument object) (string, error) {
	var settings cloudinit.Origin
	if err := arguments.Decode(argument, &settings); err != nil {
		return "", err
	}
	return settings.UserData()
}

func read(t *testing.T, text []byte) object {
	t.Helper()
	data := object{}
	if err := yaml.Unmarshal(text, &data); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return data
}

// files returns the contents of the files that a machine gets.
func files(t *testing.T, text string) map[string]string {
	t.Helper()
	contents := map[string]string{}
	for _, item := range read(t, []byte(text))["write_files"].([]any) {
		contents[item.(object)["path"].(string)] = item.(object)["content"].(string)
	}
	return contents
}

// plain leaves out what a person edits: comments, and the texts that stand for secrets.
func plain(t *testing.T, text []byte) object {
	data := read(t, text)
	for _, item := range data["write_files"].([]any) {
		file := item.(object)
		if strings.HasSuffix(file["path"].(string), ".env") || strings.HasSuffix(file["path"].(string), ".toml") {
			content := strings.ReplaceAll(file["content"].(string), "_...", "_x")
			lines := regexp.MustCompile(`(?m)^ *#.*\n`).ReplaceAllString(content, "")
			sorted := strings.Split(strings.TrimSpace(lines), "\n")
			slices.Sort(sorted)
			file["content"] = strings.Join(sorted, "\n")
		}
	}
	return data
}

// TestSameAsFiles compares what functions write with the user data for persons.
func TestSameAsFiles(t *testing.T) {
	for name, one := range map[string]struct {
		file     []byte
		argument object
		write    func(object) (string, error)
	}{
		"edge":    {userdata.Edge, edge, makeEdge},
		"anycast": {userdata.AnycastEdge, anycast, makeEdge},
		"origin":  {userdata.Origin, origin, makeOrigin},
	} {
		text, err := one.write(one.argument)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !strings.HasPrefix(text, "#cloud-config\n") {
			t.Errorf("%s begins with %.20q", name, text)
		}
		want, have := plain(t, one.file), plain(t, []byte(text))
		for key := range with(want, have) {
			if !reflect.DeepEqual(want[key], have[key]) {
				t.Errorf("%s: %s is\n%v\nand not\n%v", name, key, have[key], want[key])
			}
		}
	}
}

// nasty are texts that must come through every form of quoting.
var nasty = []string{
	`"quoted" 'twice'`, "two\nlines\n", "windows\r\n\ttab", "$(reboot) `reboot` ${HOME} $HOME", `back\slash\n`,
	"ünïcode 🦀", "separators \u2028 \u2029 \u0085", "\ufeffmark", "#comment", "yes", "0123", "1:30", " leading", "trailing \n\n", "- item", "key: value", "{{ jinja }}",
	"", "\n", "a\x01b", "%cloud-config", "---\n...\n",
}

func everything() map[string]func() (string, error) {
	given := []any{}
	for index, text := range nasty {
		given = append(given, object{"path": fmt.Sprintf("/srv/%d", index), "content": text, "permissions": "0640", "owner": "root:root"})
	}
	given = append(given, object{"path": "/srv/plain", "content": "x"})
	more := object{
		"packages": []any{"nginx"}, "files": given, "environment": object{"SALLYPORT_AUDIT": `"$(x)" \ ` + "`y`"},
		"commands": []any{"systemctl restart nginx", []any{"echo", "two words", "$(x)"}},
	}
	made := map[string]func() (string, error){}
	for name, way := range map[string]object{"fetched": {}, "apt": {"program": nil, "apt": with(repository, object{"version": "1.0.0-1"})}, "installed": {"program": nil, "installed": true}} {
		made["edge "+name] = func() (string, error) {
			return makeEdge(with(with(edge, more), with(way, object{"listen": "192.0.2.10:443", "listen_http": "none", "name": "eu-1"})))
		}
		made["anycast "+name] = func() (string, error) { return makeEdge(with(with(anycast, more), way)) }
		made["origin "+name] = func() (string, error) {
			return makeOrigin(with(with(origin, more), with(way, object{"ca": "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n", "token": "spt_x", "redundancy": int64(1)})))
		}
	}
	return made
}

// TestCloudInit has the schema of the real cloud-init judge user data, and its own library for YAML read the texts.
func TestCloudInit(t *testing.T) {
	program, err := exec.LookPath("cloud-init")
	if err != nil {
		t.Skip("skipped: cloud-init is not there (Debian's package cloud-init)")
	}
	folder := t.TempDir()
	for name, write := range everything() {
		text, err := write()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		file := filepath.Join(folder, strings.ReplaceAll(name, " ", "-")+".yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		answer, err := exec.Command(program, "schema", "--config-file", file).CombinedOutput()
		if err != nil || !strings.Contains(string(answer), "Valid") {
			t.Errorf("%s: %s\n%s", name, answer, text)
		}
		read, err := exec.Command("/usr/bin/python3", "-c", "import json, sys, yaml; print(json.dumps(yaml.safe_load(open(sys.argv[1], encoding='utf-8'))))", file).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %s", name, read)
		}
		var data struct {
			Files    []struct{ Path, Content string } `json:"write_files"`
			Commands []any                            `json:"runcmd"`
		}
		if err := json.Unmarshal(read, &data); err != nil {
			t.Fatal(err)
		}
		found := map[string]string{}
		for _, file := range data.Files {
			found[file.Path] = file.Content
		}
		for index, want := range nasty {
			if have := found[fmt.Sprintf("/srv/%d", index)]; have != want {
				t.Errorf("%s: %q became %q", name, want, have)
			}
		}
		if !reflect.DeepEqual(data.Commands[1], []any{"echo", "two words", "$(x)"}) {
			t.Errorf("%s: the commands are %v", name, data.Commands)
		}
	}
}

// TestEnvironment has a shell read the settings, as the install script does.
func TestEnvironment(t *testing.T) {
	for _, want := range nasty {
		text, err := makeEdge(with(edge, object{"environment": object{"IT": want}}))
		if strings.ContainsFunc(want, func(r rune) bool { return r < ' ' }) {
			if err == nil || !strings.Contains(err.Error(), "control character") {
				t.Errorf("%q is taken: %v", want, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "edge.env")
		if err := os.WriteFile(file, []byte(files(t, text)["/etc/sallyport/edge.env"]), 0o600); err != nil {
			t.Fatal(err)
		}
		have, err := exec.Command("sh", "-euc", `IT=; . "$0"; printf %s "$IT"`, file).CombinedOutput()
		if err != nil || string(have) != want {
			t.Errorf("%q became %q: %v", want, have, err)
		}
	}
}

// TestWays looks at what is left of the script and the units where the program is not fetched.
func TestWays(t *testing.T) {
	for name, write := range everything() {
		text, err := write()
		if err != nil {
			t.Fatal(err)
		}
		contents, data := files(t, text), read(t, []byte(text))
		isFetched, isApt := strings.HasSuffix(name, "fetched"), strings.HasSuffix(name, "apt")
		install := contents["/usr/local/sbin/sallyport-install"]
		if strings.Contains(install, "curl ") != isFetched || strings.Contains(install, "install.env") != isFetched || (contents["/etc/sallyport/install.env"] != "") != isFetched {
			t.Errorf("%s has the script\n%s", name, install)
		}
		if answer, err := exec.Command("sh", "-n", "-c", install).CombinedOutput(); err != nil {
			t.Errorf("%s: %s", name, answer)
		}
		if !strings.Contains(install, "systemctl enable --now sallyport-") {
			t.Errorf("%s starts nothing:\n%s", name, install)
		}
		if strings.Contains(text, "/usr/local/bin/sallyport") && !isFetched {
			t.Errorf("%s names a program that is not there", name)
		}
		if (data["apt"] != nil) != isApt {
			t.Errorf("%s has the repositories %v", name, data["apt"])
		}
		unit := contents["/etc/systemd/system/sallyport-edge.service"] + contents["/etc/systemd/system/sallyport-run.service"]
		isOwn := !isApt || strings.HasPrefix(name, "edge") // the package has one, but it listens elsewhere
		if (unit != "") != isOwn {
			t.Errorf("%s has the unit %q", name, unit)
		}
		if strings.HasPrefix(name, "edge") && !strings.Contains(unit, "--listen 192.0.2.10:443 --listen-http none\n") {
			t.Errorf("%s listens elsewhere: %s", name, unit)
		}
	}
}

// TestSecretsAreForRoot looks at the rights of files with secrets.
func TestSecretsAreForRoot(t *testing.T) {
	for name, write := range everything() {
		text, err := write()
		if err != nil {
			t.Fatal(err)
		}
		for _, item := range read(t, []byte(text))["write_files"].([]any) {
			file := item.(object)
			if content := file["content"].(string); regexp.MustCompile(`sp[etc]_x`).MatchString(content) && file["permissions"] != "0600" {
				t.Errorf("%s: %s has the rights %v", name, file["path"], file["permissions"])
			}
			if file["path"] == "/srv/plain" && file["permissions"] != "0600" {
				t.Errorf("%s: an owner's file has the rights %v", name, file["permissions"])
			}
		}
	}
}

// TestRefusals has each wrong argument refused with the words that help.
func TestRefusals(t *testing.T) {
	for words, argument := range map[string]object{
		`"regoin": is "region" meant?`:         {"regoin": "eu"},
		`"program.sha": is "sha256"`:           {"program": object{"url": "https://x", "sha": "x"}},
		`"files[0].mode": the fields`:          {"files": []any{object{"mode": "x"}}},
		"set one of `program`":                 {"installed": true},
		"begins with spe_":                     {"token": "spt_x"},
		"64 hexadecimal digits":                {"program": object{"url": "https://x", "sha256": "x"}},
		"`program.url` is \"ftp":               {"program": object{"url": "ftp://x", "sha256": sha}},
		"`advertise` is \"here\"":              {"advertise": "here"},
		"`listen` is \":443 --takeover":        {"listen": ":443 --takeover"},
		"is no prefix such as":                 {"anycast": object{"allow": []any{"x"}}},
		"`anycast.allow` is missing":           {"anycast": object{}},
		"is no name of a variable":             {"environment": object{"a b": "x"}},
		"which another field sets":             {"environment": object{"SALLYPORT_REGION": "us"}},
		"beginning with a slash":               {"files": []any{object{"path": "x", "content": "x"}}},
		"write octal digits":                   {"files": []any{object{"path": "/x", "content": "x", "permissions": "rw"}}},
		"has already from here":                {"files": []any{object{"path": "/etc/sallyport/edge.env", "content": "x"}}},
		"`files[0].path` is \"/etc//sally":     {"files": []any{object{"path": "/etc//sallyport/edge.env", "content": "x"}}},
		"`files[0].path` is \"/etc/x/..":       {"files": []any{object{"path": "/etc/x/../sallyport/edge.env", "content": "x"}}},
		"`files[0].path` is \"/srv/x\\n":       {"files": []any{object{"path": "/srv/x\n", "content": "x"}}},
		"write USER or USER:GROUP":             {"files": []any{object{"path": "/srv/x", "content": "x", "owner": "a b"}}},
		"`listen_http` is \":65536\"":          {"listen_http": ":65536"},
		"`anycast.allow` has \"198.51.100.7/":  {"anycast": object{"allow": []any{"198.51.100.7/24"}}},
		"is no name of a package":              {"packages": []any{"--allow-downgrades"}},
		"`commands[0]` is no command":          {"commands": []any{[]any{}}},
		"write texts":                          {"commands": []any{[]any{int64(1)}}},
		"`packages` is no list: write":         {"packages": "nginx"},
		"`program` is no object: write { … }":  {"program": "https://x"},
		"`region` is a number where a text is": {"region": int64(1)},
	} {
		_, err := makeEdge(with(edge, argument))
		if err == nil || !strings.Contains(err.Error(), words) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q is not what is said: %v", words, err)
		}
	}
	for words, argument := range map[string]object{
		"`services` is missing":         {"services": nil},
		"`api` is \"\"":                 {"api": nil},
		"no `tunnel_credential`":        {"services": []any{object{"port": int64(1)}}},
		"write the root":                {"ca": "/etc/ca.pem"},
		"`ca` has a private key":        {"ca": "-----BEGIN CERTIFICATE-----\nx\n-----BEGIN EC PRIVATE KEY-----\n"},
		"`api` has a user":              {"api": "https://ann:secret@api.example.com"},
		"`apt.url` has a user":          {"program": nil, "apt": with(repository, object{"url": "https://ann:secret@x"})},
		"has white space":               {"token": "spt_x\n"},
		"`apt.key` is no key":           {"program": nil, "apt": object{"url": "https://x", "key": "x"}},
		"`apt.suite` is \"a b\"":        {"program": nil, "apt": with(repository, object{"suite": "a b"})},
		`is "redundancy" meant?`:        {"redundancies": int64(1)},
		`"services[0].prot": is "port"`: {"services": []any{object{"prot": int64(1)}}},
	} {
		_, err := makeOrigin(with(origin, argument))
		if err == nil || !strings.Contains(err.Error(), words) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q is not what is said: %v", words, err)
		}
	}
}
