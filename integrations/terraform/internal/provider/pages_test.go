package provider_test

import (
	"archive/zip"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/ephemeral"
	"github.com/hashicorp/terraform-plugin-framework/function"
	"github.com/hashicorp/terraform-plugin-framework/resource"

	"github.com/sallyport/sallyport/integrations/terraform/internal/acctest"
	"github.com/sallyport/sallyport/integrations/terraform/internal/client"
	"github.com/sallyport/sallyport/integrations/terraform/internal/provider"
)

const page = "../../../../docs/terraform.md"

// blocks returns the blocks of a language in the page for users.
func blocks(t *testing.T, language string) []string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	found := []string{}
	for _, match := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		found = append(found, match[1])
	}
	return found
}

// TestPage does what the page for users says, word by word: the archive of a release, `terraform init`, and no settings
// of the test in between.
func TestPage(t *testing.T) {
	account, w := one(t, strings.Join(blocks(t, "hcl"), "\n"))
	if err := os.Remove(filepath.Join(w.Folder, "versions.tf")); err != nil {
		t.Fatal(err)
	}
	archive(t, filepath.Join(w.Folder, fmt.Sprintf("terraform-provider-sallyport_%s_linux_amd64.zip", acctest.ProviderVersion)))
	w.Set("TF_CLI_CONFIG_FILE", "/dev/null")
	shell := blocks(t, "sh")
	commands := strings.Replace(shell[len(shell)-1], "terraform apply", "terraform apply -auto-approve -no-color", 1)
	command := exec.Command("bash", "-euo", "pipefail", "-c", commands+"\nterraform apply -auto-approve -no-color -var machines=4")
	command.Dir, command.Env = w.Folder, w.Command().Env
	text, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("the page: %v\n%s", err, text)
	}
	for _, words := range []string{"Apply complete! Resources: 3 added, 0 changed, 0 destroyed.", "Apply complete! Resources: 2 added, 0 changed, 0 destroyed.", `shop = "https://`} {
		if !strings.Contains(string(text), words) {
			t.Errorf("%q is missing:\n%s", words, text)
		}
	}
	items, _ := account.Call(t, "GET", "/v1/sockets/shop/tunnels", nil)["items"].([]any)
	if len(items) != 4 {
		t.Errorf("there are %d tunnels", len(items))
	}
}

// archive writes the provider as a release has it.
func archive(t *testing.T, name string) {
	t.Helper()
	program, err := os.ReadFile(acctest.ProviderProgram())
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	writer := zip.NewWriter(file)
	header := &zip.FileHeader{Name: "terraform-provider-sallyport_v" + acctest.ProviderVersion, Method: zip.Deflate}
	header.SetMode(0o755)
	entry, err := writer.CreateHeader(header)
	if err == nil {
		_, err = entry.Write(program)
	}
	if err == nil {
		err = writer.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestExamples validates every example, and finds one with an import for every resource.
func TestExamples(t *testing.T) {
	_, w := one(t, "")
	ctx := context.Background()
	for _, create := range provider.New("test")().Resources(ctx) {
		var named resource.MetadataResponse
		create().Metadata(ctx, resource.MetadataRequest{ProviderTypeName: "sallyport"}, &named)
		for _, file := range []string{"resource.tf", "import.sh"} {
			if _, err := os.Stat(filepath.Join("../../examples/resources", named.TypeName, file)); err != nil {
				t.Errorf("%s has no %s among the examples", named.TypeName, file)
			}
		}
	}
	others := map[string]int{
		"data-sources": len(provider.New("test")().DataSources(ctx)),
		"ephemeral-resources": len(provider.New("test")().(interface {
			EphemeralResources(context.Context) []func() ephemeral.EphemeralResource
		}).EphemeralResources(ctx)),
		"functions": len(provider.New("test")().(interface {
			Functions(context.Context) []func() function.Function
		}).Functions(ctx)),
	}
	for folder, count := range others {
		found, _ := filepath.Glob("../../examples/" + folder + "/*/*.tf")
		if len(found) != count {
			t.Errorf("there are %d %s, and examples of %d", count, folder, len(found))
		}
	}
	files, err := filepath.Glob("../../examples/*/*/*.tf")
	if err != nil || len(files) == 0 {
		t.Fatal("there are no examples")
	}
	modules := ""
	for index, file := range files {
		folder := filepath.Join(w.Folder, fmt.Sprintf("m%d", index))
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		w.Write(t, fmt.Sprintf("m%d/main.tf", index), string(text))
		w.Write(t, fmt.Sprintf("m%d/versions.tf", index), w.Read(t, "versions.tf"))
		modules += fmt.Sprintf("module %q {\n  source = \"./m%d\"\n", fmt.Sprintf("m%d", index), index)
		for _, variable := range regexp.MustCompile(`(?ms)^variable "([a-z_]+)" {(.*?)^}`).FindAllStringSubmatch(string(text), -1) {
			if !strings.Contains(variable[2], "default") {
				modules += fmt.Sprintf("  %s = \"x\"\n", variable[1])
			}
		}
		modules += "}\n"
	}
	w.Write(t, "main.tf", modules)
	w.Must(t, "get")
	w.Must(t, "validate", "-no-color")
}

// TestGeneratedConfiguration takes over what others made: Terraform writes the configuration, and the plan is empty.
func TestGeneratedConfiguration(t *testing.T) {
	account, w := one(t, "")
	make := func(path string, body client.Object) string {
		return account.Call(t, http.MethodPost, path, body)["id"].(string)
	}
	policy := make("/v1/policies", client.Object{"name": "staff", "document": client.Object{"allow": []any{client.Object{"who": client.Object{"anyone": true}}}}})
	web := make("/v1/sockets", client.Object{"name": "web", "policies": []string{"staff"}, "limits": client.Object{"max_connections": 9},
		"health_check": client.Object{"type": "http", "path": "/up"}, "regions": client.Object{"eu": client.Object{"dial": 50}}})
	database := make("/v1/sockets", client.Object{"name": "db", "type": "tls"})
	tunnel := make("/v1/sockets/"+web+"/tunnels", client.Object{"name": "one", "path": "/api", "capacity": client.Object{"max_rps": 7}})
	origin := make("/v1/sockets/"+web+"/origins", client.Object{"address": "127.0.0.1:80"})
	imports := map[string]string{
		"sallyport_policy.staff": policy, "sallyport_socket.web": web, "sallyport_socket.db": database,
		"sallyport_tunnel.one": web + "/" + tunnel, "sallyport_origin.one": web + "/" + origin,
		"sallyport_policy_attachment.web": policy + "/" + web,
	}
	text := ""
	for address, id := range imports {
		text += fmt.Sprintf("import {\n  to = %s\n  id = %q\n}\n", address, id)
	}
	w.Write(t, "main.tf", text)
	w.Must(t, "plan", "-generate-config-out", "generated.tf", "-no-color")
	plan := w.Plan(t)
	for address := range imports {
		if found := plan.Changes[address]; !found.IsImporting || !slices.Equal(found.Actions, []string{"no-op"}) {
			t.Errorf("%s: the plan would %v %v\n%s", address, found.Actions, found.Different, w.Read(t, "generated.tf"))
		}
	}
	w.Must(t, "apply", "it.plan")
	w.NoChanges(t)
}
