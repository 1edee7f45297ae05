package acctest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// Workspace is a folder with Terraform files and their state.
type Workspace struct {
	Folder      string
	environment map[string]string
}

// Change is what a plan would do to one resource.
type Change struct {
	Actions     []string // create, update, delete, no-op; delete and create for a replacement
	Different   []string // the attributes that change, in order
	IsImporting bool
}

// Plan is what a plan would do: changes by address, and all of it as JSON.
type Plan struct {
	Changes map[string]Change
	JSON    string
}

// NewWorkspace makes a folder for Terraform with the built provider. The settings of the provider are in the
// environment.
func NewWorkspace(t *testing.T, account *Account) *Workspace {
	t.Helper()
	folder := t.TempDir()
	rc := fmt.Sprintf("provider_installation {\n  dev_overrides {\n    \"sallyport.dev/sallyport/sallyport\" = %q\n  }\n  direct {}\n}\n", shared.plugins)
	w := &Workspace{Folder: folder, environment: map[string]string{
		"HOME": folder, "PATH": os.Getenv("PATH"), "TF_CLI_CONFIG_FILE": filepath.Join(folder, "terraform.rc"),
		"TF_IN_AUTOMATION": "1", "CHECKPOINT_DISABLE": "1", "TF_INPUT": "0", "GOGC": "400",
	}}
	if account != nil {
		maps.Copy(w.environment, account.Environment())
	}
	w.Write(t, "terraform.rc", rc)
	w.Write(t, "versions.tf", "terraform {\n  required_providers {\n    sallyport = {\n      source = \"sallyport.dev/sallyport/sallyport\"\n    }\n  }\n}\n")
	return w
}

// Set sets a variable of the environment.
func (w *Workspace) Set(name, value string) { w.environment[name] = value }

// Write writes a file of the workspace.
func (w *Workspace) Write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(w.Folder, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Read returns the text of a file of the workspace.
func (w *Workspace) Read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(w.Folder, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Command returns a command of terraform, for tests that need more than Run.
func (w *Workspace) Command(arguments ...string) *exec.Cmd {
	command := exec.Command(shared.terraform, arguments...)
	command.Dir = w.Folder
	for name, value := range w.environment {
		command.Env = append(command.Env, name+"="+value)
	}
	return command
}

// Run runs terraform, and returns what it wrote to standard output, and both outputs.
func (w *Workspace) Run(arguments ...string) (output, all string, err error) {
	command := w.Command(arguments...)
	var out, both bytes.Buffer
	command.Stdout = &out
	command.Stderr = &both
	err = command.Run()
	return out.String(), out.String() + both.String(), err
}

// Must runs terraform, which must succeed.
func (w *Workspace) Must(t *testing.T, arguments ...string) string {
	t.Helper()
	output, all, err := w.Run(arguments...)
	if err != nil {
		t.Fatalf("terraform %s: %v\n%s", strings.Join(arguments, " "), err, all)
	}
	return output
}

// Fails runs terraform, which must fail with all these words, and returns what it said. Lines may break anywhere.
func (w *Workspace) Fails(t *testing.T, words []string, arguments ...string) string {
	t.Helper()
	_, all, err := w.Run(append(arguments, "-no-color")...)
	flat := Flat(all)
	if err == nil {
		t.Fatalf("terraform %s succeeded:\n%s", strings.Join(arguments, " "), all)
	}
	for _, word := range words {
		if !strings.Contains(flat, word) {
			t.Fatalf("terraform %s does not say %q:\n%s", strings.Join(arguments, " "), word, flat)
		}
	}
	return flat
}

// Flat returns a message of terraform without the lines and bars that it is framed by.
func Flat(message string) string {
	message = strings.NewReplacer("│", " ", "╷", " ", "╵", " ").Replace(message)
	return strings.Join(strings.Fields(message), " ")
}

// Apply applies what is written, which must succeed.
func (w *Workspace) Apply(t *testing.T) {
	t.Helper()
	w.Must(t, "apply", "-auto-approve", "-no-color")
}

// Plan plans, which must succeed.
func (w *Workspace) Plan(t *testing.T, arguments ...string) Plan {
	t.Helper()
	w.Must(t, append([]string{"plan", "-no-color", "-out", "it.plan"}, arguments...)...)
	return w.readPlan(t, w.Must(t, "show", "-json", "it.plan"))
}

func (w *Workspace) readPlan(t *testing.T, text string) Plan {
	t.Helper()
	var read struct {
		Changes []struct {
			Address string `json:"address"`
			Mode    string `json:"mode"`
			Change  struct {
				Actions   []string       `json:"actions"`
				Before    map[string]any `json:"before"`
				After     map[string]any `json:"after"`
				Unknown   map[string]any `json:"after_unknown"`
				Importing any            `json:"importing"`
			} `json:"change"`
		} `json:"resource_changes"`
	}
	if err := json.Unmarshal([]byte(text), &read); err != nil {
		t.Fatal(err)
	}
	plan := Plan{map[string]Change{}, text}
	for _, change := range read.Changes {
		if change.Mode != "managed" {
			continue
		}
		different := map[string]bool{}
		for name := range change.Change.Before {
			different[name] = different[name] || !reflect.DeepEqual(change.Change.Before[name], change.Change.After[name])
		}
		for name, value := range change.Change.After {
			different[name] = different[name] || !reflect.DeepEqual(change.Change.Before[name], value)
		}
		for name, isUnknown := range change.Change.Unknown {
			different[name] = different[name] || isUnknown == true
		}
		maps.DeleteFunc(different, func(_ string, is bool) bool { return !is })
		plan.Changes[change.Address] = Change{change.Change.Actions, slices.Sorted(maps.Keys(different)), change.Change.Importing != nil}
	}
	return plan
}

// NoChanges plans, and fails a test where the plan would do something.
func (w *Workspace) NoChanges(t *testing.T) {
	t.Helper()
	if _, all, err := w.Run("plan", "-no-color", "-detailed-exitcode"); err != nil {
		t.Fatalf("a second plan is not empty: %v\n%s", err, all)
	}
}

// Attributes returns the attributes of a resource in the state.
func (w *Workspace) Attributes(t *testing.T, address string) map[string]any {
	t.Helper()
	kind, name, _ := strings.Cut(address, ".")
	for _, resource := range w.resources(t) {
		if resource.Type == kind && resource.Name == name && len(resource.Instances) > 0 {
			return resource.Instances[0].Attributes
		}
	}
	t.Fatalf("%s is not in the state", address)
	return nil
}

type stateResource struct {
	Type      string `json:"type"`
	Name      string `json:"name"`
	Instances []struct {
		Attributes map[string]any `json:"attributes"`
	} `json:"instances"`
}

func (w *Workspace) resources(t *testing.T) []stateResource {
	t.Helper()
	var state struct {
		Resources []stateResource `json:"resources"`
	}
	if err := json.Unmarshal([]byte(w.Read(t, "terraform.tfstate")), &state); err != nil {
		t.Fatal(err)
	}
	return state.Resources
}
