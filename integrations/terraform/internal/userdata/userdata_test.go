package userdata

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"
	"go.yaml.in/yaml/v3"
)

const hostile = "a \"b\" 'c' $(touch /tmp/x) `d` \\ é # ; {{ y }}"

var program = Object{"url": "https://downloads.example.com/sallyport", "sha256": strings.Repeat("0f", 32)}

func files(t *testing.T, text string) map[string]string {
	t.Helper()
	if !strings.HasPrefix(text, "#cloud-config\n") {
		t.Fatalf("cloud-init takes it for something else: %.40q", text)
	}
	var document struct {
		Files []struct{ Path, Content, Permissions string } `yaml:"write_files"`
	}
	if err := yaml.Unmarshal([]byte(text), &document); err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, file := range document.Files {
		found[file.Path] = file.Content
		isSecret := strings.HasSuffix(file.Path, ".env") || strings.HasSuffix(file.Path, ".toml")
		if isSecret && file.Permissions != "0600" {
			t.Errorf("%s has the mode %s", file.Path, file.Permissions)
		}
	}
	return found
}

// shown is what a shell makes of a file of variables.
func shown(t *testing.T, content, name string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "env")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	text, err := exec.Command("sh", "-c", `. "$1"; eval "printf %s \"\$$2\""`, "sh", path, name).Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// judge has cloud-init judge user data.
func judge(t *testing.T, text string) {
	t.Helper()
	if _, err := exec.LookPath("cloud-init"); err != nil {
		t.Log("cloud-init is not there, so its schema was not asked")
		return
	}
	path := filepath.Join(t.TempDir(), "user-data")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if said, err := exec.Command("cloud-init", "schema", "--config-file", path).CombinedOutput(); err != nil {
		t.Errorf("cloud-init: %v\n%s", err, said)
	}
}

func TestEdge(t *testing.T) {
	text, err := Edge(Object{
		"token": "spe_1", "name": "eu-1", "region": "eu", "advertise": "192.0.2.10:443", "program": program,
		"environment": Object{"SALLYPORT_NOTE": hostile},
	})
	if err != nil {
		t.Fatal(err)
	}
	judge(t, text)
	found := files(t, text)
	for name, value := range map[string]string{
		"SALLYPORT_JOIN": "spe_1", "SALLYPORT_NAME": "eu-1", "SALLYPORT_REGION": "eu",
		"SALLYPORT_ADVERTISE": "192.0.2.10:443", "SALLYPORT_NOTE": hostile,
	} {
		if is := shown(t, found[edgeFile], name); is != value {
			t.Errorf("%s is %q, not %q", name, is, value)
		}
	}
	if is := shown(t, found[installFile], "SALLYPORT_SHA256"); is != program["sha256"] {
		t.Errorf("the digest is %q", is)
	}
}

func TestAnycastEdge(t *testing.T) {
	text, err := Edge(Object{"token": "spe_1", "program": program, "anycast_allow": []any{"198.51.100.0/24", "2001:db8:a::/48"}})
	if err != nil {
		t.Fatal(err)
	}
	judge(t, text)
	if is := shown(t, files(t, text)[edgeFile], "SALLYPORT_ANYCAST_ALLOW"); is != "198.51.100.0/24,2001:db8:a::/48" {
		t.Errorf("the prefixes are %q", is)
	}
	if !strings.Contains(text, "bird2") {
		t.Error("the machine does not get BIRD")
	}
}

func TestOriginWithParts(t *testing.T) {
	service := Object{"name": hostile, "socket_id": "wandering-shape-7752", "port": int64(8000), "allow": []any{"192.0.2.0/24"}, "cloudauth": true, "path": nil}
	of := Object{"api": "https://api.example.com", "ca": "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "program": program, "services": []any{service}}
	alone, err := Origin(of)
	if err != nil {
		t.Fatal(err)
	}
	judge(t, alone)
	found := files(t, alone)
	var written struct{ Service []map[string]any }
	if err := toml.Unmarshal([]byte(found[servicesFile]), &written); err != nil {
		t.Fatal(err)
	}
	read := written.Service[0]
	if read["name"] != hostile || read["socket-id"] != "wandering-shape-7752" || read["port"] != int64(8000) || read["cloudauth"] != true {
		t.Errorf("the service is %v", read)
	}
	if _, isThere := read["path"]; isThere {
		t.Error("a key that is null is written")
	}
	if found[caFile] != of["ca"] || shown(t, found[runFile], "SALLYPORT_CA") != caFile {
		t.Error("the machine does not trust the root certificate")
	}

	of["more"] = []any{"#cloud-config\nruncmd:\n  - [systemctl, enable, --now, gifs]\n", "#!/bin/sh\necho hello\n"}
	several, err := Origin(of)
	if err != nil {
		t.Fatal(err)
	}
	var parts []struct{ Type, Content string }
	if err := yaml.Unmarshal([]byte(several), &parts); err != nil || !strings.HasPrefix(several, "#cloud-config-archive\n") {
		t.Fatalf("%v: %.40q", err, several)
	}
	if len(parts) != 3 || parts[1].Type != "text/x-shellscript" || !strings.Contains(parts[2].Content, "merge_how: list(append)") {
		t.Errorf("the parts are %v", parts)
	}
	judge(t, parts[2].Content)
}

func TestWhatIsWrong(t *testing.T) {
	good := Object{"token": "spe_1", "program": program}
	with := func(name string, value any) Object {
		of := maps.Clone(good)
		of[name] = value
		return of
	}
	for words, of := range map[string]Object{
		`cloud_init_edge has no field "tokn"`:          with("tokn", "x"),
		"token is missing":                             with("token", nil),
		"program: url is missing":                      with("program", nil),
		"program: sha256 is no SHA-256":                with("program", Object{"url": "https://a", "sha256": "abc"}),
		"program: url is no address":                   with("program", Object{"url": "ftp://a", "sha256": program["sha256"]}),
		`program has no field "sha512"`:                with("program", Object{"url": "https://a", "sha256": program["sha256"], "sha512": "x"}),
		"environment: the value of A has a line end":   with("environment", Object{"A": "b\nSALLYPORT_JOIN=c"}),
		`environment: "A B" is no name of a variable`:  with("environment", Object{"A B": "c"}),
		"region: a text is expected, not 7":            with("region", int64(7)),
		"anycast_allow: a list of texts is expected":   with("anycast_allow", "198.51.100.0/24"),
		"more: a part begins with #cloud-config or #!": with("more", []any{"echo hello"}),
	} {
		if _, err := Edge(of); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%q is not said, but %v", words, err)
		}
	}
	for words, of := range map[string]Object{
		"a list of one service at least": {"service": nil},
		"number 2 is no object":          {"service": []any{Object{"port": int64(1)}, "two"}},
	} {
		if _, err := Services(of); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%q is not said, but %v", words, err)
		}
	}
}

func TestBasesAreThoseForPeople(t *testing.T) {
	for _, name := range []string{"edge.yaml", "anycast-edge.yaml", "origin.yaml"} {
		mine, err := base.ReadFile("base/" + name)
		if err != nil {
			t.Fatal(err)
		}
		theirs, err := os.ReadFile(filepath.Join("..", "..", "..", "cloud-init", name))
		if err != nil {
			t.Fatal(err)
		}
		if string(mine) != string(theirs) {
			t.Errorf("%s is not that of integrations/cloud-init: run integrations/terraform/generate", name)
		}
	}
}
