package acctest

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// Case is one resource in the tests of acceptance. Its configurations are Terraform text with the resource
// "sallyport_…" "it" and, where it needs others, these too. The tests put the cases into one folder each, with names
// that do not meet, and run them side by side.
type Case struct {
	// Resource is the type: "sallyport_socket".
	Resource string
	// Name tells the cases of one resource apart; may be empty.
	Name string
	// IsOfInstallation says that only the account which owns an installation may have the resource. These cases share
	// one control, and have names of their own.
	IsOfInstallation bool
	// Prepare makes what the resource needs beforehand; may be nil. What it returns replaces {NAME} in the texts.
	Prepare func(t *testing.T, account *Account) map[string]string
	// Others are other resources that all configurations need.
	Others string
	// Minimal and Full are the resource with as little and as much as it takes.
	Minimal, Full string
	// Changed is Full with other values, all of which change in place: Differing are the attributes.
	Changed   string
	Differing []string
	// Replaced is Full with a value that makes a new resource, as documented; "" for none.
	Replaced string
	// ImportID makes the id of an import from the attributes; the attribute id when nil.
	ImportID func(attributes map[string]any) string
	// ImportDiffers are attributes that an import cannot know, as documented.
	ImportDiffers []string
	// Words are attributes whose words an import cannot know: control writes them in its own way.
	Words []string
	// Elsewhere changes the resource (which is Full) by the API, and Drift are the attributes that a plan then changes.
	// Nil for what cannot change.
	Elsewhere func(t *testing.T, account *Account, attributes map[string]any)
	Drift     []string
	// Lose deletes the resource by the API.
	Lose func(t *testing.T, account *Account, attributes map[string]any)
	// Variables are secrets of the configurations, as var.NAME: ephemeral variables. Neither plan nor state may have
	// their values.
	Variables map[string]string
	// Secrets are other texts that neither plan nor state may have.
	Secrets []string
}

// Exit ends a test program.
func Exit(status int) { os.Exit(status) }

func (c Case) address() string { return c.Resource + ".it" }

// RunCases runs all cases.
func RunCases(t *testing.T, cases []func() Case) {
	t.Helper()
	Need(t)
	owner := StartControl(t, "--anycast-allow", "198.51.100.0/22")
	for _, make := range cases {
		c := make()
		t.Run(strings.TrimPrefix(c.Resource, "sallyport_")+c.Name, func(t *testing.T) {
			t.Parallel()
			account := owner
			if !c.IsOfInstallation {
				account = Need(t).NewAccount(t)
			}
			values := map[string]string{}
			if c.Prepare != nil {
				values = c.Prepare(t, account)
			}
			run := caseRun{Case: c, account: account, values: values, w: NewWorkspace(t, account)}
			run.all(t)
		})
	}
}

type caseRun struct {
	Case
	account *Account
	values  map[string]string
	w       *Workspace
}

// write makes a configuration that of the workspace.
func (r *caseRun) write(t *testing.T, text string) {
	t.Helper()
	text = r.Others + "\n" + text
	for name, value := range r.values {
		text = strings.ReplaceAll(text, "{"+name+"}", value)
	}
	r.w.Write(t, "main.tf", text)
}

func (r *caseRun) all(t *testing.T) {
	declared := ""
	for _, name := range slices.Sorted(maps.Keys(r.Variables)) {
		declared += fmt.Sprintf("variable %q {\n  type      = string\n  ephemeral = true\n}\n", name)
		r.w.Set("TF_VAR_"+name, r.Variables[name])
		r.Secrets = append(r.Secrets, r.Variables[name])
	}
	r.w.Write(t, "variables.tf", declared)

	// Minimal, and a second plan is empty.
	r.write(t, r.Minimal)
	r.w.Apply(t)
	r.w.NoChanges(t)

	// Full, by a change or a replacement; a second plan is empty.
	r.write(t, r.Full)
	r.w.Apply(t)
	r.w.NoChanges(t)

	r.drift(t)
	r.imported(t)
	r.lost(t)
	if r.Changed != "" {
		r.write(t, r.Changed)
		r.expect(t, "a change", []string{"update"}, r.Differing)
		r.w.Must(t, "apply", "-no-color", "it.plan")
		r.w.NoChanges(t)
	}
	if r.Replaced != "" {
		r.write(t, r.Replaced)
		r.expect(t, "a replacement", []string{"delete", "create"}, nil)
	}
	// What is no longer written has its default again.
	r.write(t, r.Minimal)
	r.w.Apply(t)
	r.w.NoChanges(t)
	r.noSecrets(t)
	r.w.Must(t, "destroy", "-auto-approve", "-no-color")
}

// expect plans, and checks the actions and the attributes of the resource.
func (r *caseRun) expect(t *testing.T, what string, actions, different []string) {
	t.Helper()
	plan := r.w.Plan(t)
	r.clean(t, "the plan", plan.JSON)
	found := plan.Changes[r.address()]
	if !slices.Equal(found.Actions, actions) {
		t.Fatalf("%s: the plan would %v %v, not %v", what, found.Actions, found.Different, actions)
	}
	if different != nil && !slices.Equal(found.Different, slices.Sorted(slices.Values(different))) {
		t.Fatalf("%s: the plan would change %v, not %v", what, found.Different, different)
	}
}

// drift changes the resource elsewhere: the plan has exactly this difference, and an apply takes it back.
func (r *caseRun) drift(t *testing.T) {
	if r.Elsewhere == nil {
		return
	}
	r.Elsewhere(t, r.account, r.w.Attributes(t, r.address()))
	r.expect(t, "a change elsewhere", []string{"update"}, r.Drift)
	r.w.Must(t, "apply", "-no-color", "it.plan")
	r.w.NoChanges(t)
}

// imported forgets the resource and imports it: the plan is empty.
func (r *caseRun) imported(t *testing.T) {
	attributes := r.w.Attributes(t, r.address())
	id, _ := attributes["id"].(string)
	if r.ImportID != nil {
		id = r.ImportID(attributes)
	}
	r.w.Must(t, "state", "rm", r.address())
	r.w.Write(t, "import.tf", fmt.Sprintf("import {\n  to = %s\n  id = %q\n}\n", r.address(), id))
	plan := r.w.Plan(t)
	found := plan.Changes[r.address()]
	if !found.IsImporting {
		t.Fatalf("the plan does not import: %+v", found)
	}
	differing := slices.DeleteFunc(slices.Clone(found.Different), func(name string) bool { return slices.Contains(r.ImportDiffers, name) })
	if len(differing) > 0 || (len(r.ImportDiffers) == 0 && !slices.Equal(found.Actions, []string{"no-op"})) {
		t.Fatalf("after an import the plan would %v %v", found.Actions, found.Different)
	}
	r.w.Must(t, "apply", "-no-color", "it.plan")
	r.w.Write(t, "import.tf", "")
	r.w.NoChanges(t)
	again := r.w.Attributes(t, r.address())
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		if fmt.Sprint(again[name]) != fmt.Sprint(attributes[name]) && !slices.Contains(append(r.ImportDiffers, r.Words...), name) {
			t.Errorf("after an import, %s is %v, and was %v", name, again[name], attributes[name])
		}
	}
}

// lost deletes the resource elsewhere: the plan makes it again.
func (r *caseRun) lost(t *testing.T) {
	if r.Lose == nil {
		return
	}
	r.Lose(t, r.account, r.w.Attributes(t, r.address()))
	r.expect(t, "after a loss", []string{"create"}, nil)
	r.w.Must(t, "apply", "-no-color", "it.plan")
	r.w.NoChanges(t)
}

// noSecrets greps the state, its backup, the plan and what terraform shows.
func (r *caseRun) noSecrets(t *testing.T) {
	t.Helper()
	for _, name := range []string{"terraform.tfstate", "terraform.tfstate.backup"} {
		r.clean(t, name, r.w.Read(t, name))
	}
	r.clean(t, "terraform show", r.w.Must(t, "show", "-json"))
}

func (r *caseRun) clean(t *testing.T, what, text string) {
	t.Helper()
	for _, secret := range append(r.Secrets, r.account.Token) {
		if strings.Contains(text, secret) {
			t.Errorf("%s has the secret %q", what, secret)
		}
	}
}
