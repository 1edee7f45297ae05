package provider

import (
	"context"
	"fmt"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/function"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sallyport/sallyport/integrations/terraform/internal/arguments"
	"github.com/sallyport/sallyport/integrations/terraform/internal/cloudinit"
	"github.com/sallyport/sallyport/integrations/terraform/internal/rest"
	"github.com/sallyport/sallyport/integrations/terraform/internal/services"
)

// maxUserDataBytes is how much user data the clouds that take the least of it take.
const maxUserDataBytes = 16 * 1024

// writer is a function of the provider that writes a text from one object.
type writer struct {
	name, summary, description string
	write                      func(argument any) (string, error)
}

// Metadata names the function.
func (w *writer) Metadata(_ context.Context, _ function.MetadataRequest, response *function.MetadataResponse) {
	response.Name = w.name
}

// Definition describes the function.
func (w *writer) Definition(_ context.Context, _ function.DefinitionRequest, response *function.DefinitionResponse) {
	response.Definition = function.Definition{
		Summary:             w.summary,
		MarkdownDescription: w.description,
		Parameters:          []function.Parameter{function.DynamicParameter{Name: "settings", MarkdownDescription: "An object with the fields above."}},
		Return:              function.StringReturn{},
	}
}

// Run writes the text.
func (w *writer) Run(ctx context.Context, request function.RunRequest, response *function.RunResponse) {
	var argument types.Dynamic
	if response.Error = request.Arguments.Get(ctx, &argument); response.Error != nil {
		return
	}
	value, err := argument.UnderlyingValue().ToTerraformValue(ctx)
	text := ""
	if err == nil {
		text, err = w.write(rest.Plain(value))
	}
	if err != nil {
		response.Error = function.NewArgumentFuncError(0, strings.TrimSuffix(rest.Sentence(err), "."))
		return
	}
	response.Error = response.Result.Set(ctx, text)
}

func newFunction(w writer) func() function.Function {
	return func() function.Function { return &w }
}

// machine says what the functions for user data have in common.
const machine = `
One of these says where the machine has the program from:

- ` + "`program`" + ` (object): ` + "`url`" + `, an address of the program, and ` + "`sha256`" + `, what sha256sum says of it. The machine installs nothing else.
- ` + "`apt`" + ` (object): ` + "`url`" + ` and ` + "`key`" + ` (OpenPGP, armored) of an apt repository, and optionally ` + "`suite`" + ` (` + "`stable`" + `), ` + "`component`" + ` (` + "`main`" + `) and ` + "`version`" + `.
- ` + "`installed`" + ` (bool): the image of the machine has the program.

These are for whatever else the machine does:

- ` + "`packages`" + ` (list of strings): packages of the distribution.
- ` + "`files`" + ` (list of objects): ` + "`path`" + ` and ` + "`content`" + `, and optionally ` + "`permissions`" + ` (` + "`0600`" + `: its owner alone) and ` + "`owner`" + ` (` + "`root:root`" + `).
- ` + "`commands`" + ` (list): lines for the shell, or lists of words. They run once, before the program starts.
- ` + "`environment`" + ` (map of strings): more settings of the program, such as ` + "`SALLYPORT_AUDIT`" + `.

A field that nobody knows is an error. A null field is as absent. The user data has at most 16384 bytes, the least that clouds take.
Where the argument has ephemeral or sensitive values, so is the result.`

var (
	servicesTOML = writer{
		name:    "services_toml",
		summary: "The file of `sallyport run`",
		description: `Writes the file with services that ` + "`sallyport run`" + ` serves.

- ` + "`services`" + ` (list of objects, required): what [each service](https://github.com/sallyport/sallyport/blob/main/docs/run.md) has: the long options of ` + "`sallyport connect`" + ` and ` + "`sallyport tunnel connect`" + `, with underscores or hyphens.
- ` + "`transport`, `congestion`, `mptcp`, `link`, `redundancy`, `region`, `keepalive`, `max_legs`" + `: the connection to the edge, for all services.

A field that nobody knows is an error. A null field is as absent.`,
		write: func(argument any) (string, error) {
			var file services.File
			if err := arguments.Decode(argument, &file); err != nil {
				return "", err
			}
			return file.TOML()
		},
	}
	cloudInitEdge = writer{
		name:    "cloud_init_edge",
		summary: "User data that makes a fresh machine an edge",
		description: `Writes user data for cloud-init that makes a fresh machine an edge: its unit, its settings that root alone reads, and a script that starts it. The script removes the token once it is used.

- ` + "`token`" + ` (string, required): the token with which the machine joins, such as one of the ephemeral resource ` + "`sallyport_edge_token`" + `. It is good once.
- ` + "`name`, `region`" + ` (strings): what the token does not say already.
- ` + "`advertise`" + ` (string): the address where clients and other edges reach the machine, as ADDRESS:PORT.
- ` + "`listen`, `listen_http`" + ` (strings): where the edge listens; ` + "`:443`" + ` and ` + "`:80`" + ` when absent.
- ` + "`anycast`" + ` (object): ` + "`allow`" + `, the prefixes that the machine may announce by BGP. The machine gets BIRD.
` + machine,
		write: func(argument any) (string, error) {
			var edge cloudinit.Edge
			if err := arguments.Decode(argument, &edge); err != nil {
				return "", err
			}
			return bounded(edge.UserData())
		},
	}
	cloudInitOrigin = writer{
		name:    "cloud_init_origin",
		summary: "User data that makes a fresh machine an origin",
		description: `Writes user data for cloud-init that makes a fresh machine serve sockets by ` + "`sallyport run`" + `: its unit, the file of services that the unit's user alone reads, and a script that starts it.

- ` + "`api`" + ` (string, required): the address of the API.
- ` + "`ca`" + ` (string): the root certificate of the API in PEM, where the machine does not trust it anyway.
- ` + "`token`" + ` (string): an API token, where services have no ` + "`tunnel_credential`" + `.
- ` + "`services`" + ` and the settings beside them: as [` + "`services_toml`" + `](services_toml.md) takes them.
` + machine,
		write: func(argument any) (string, error) {
			var origin cloudinit.Origin
			if err := arguments.Decode(argument, &origin); err != nil {
				return "", err
			}
			return bounded(origin.UserData())
		},
	}
)

func bounded(text string, err error) (string, error) {
	if err == nil && len(text) > maxUserDataBytes {
		return "", fmt.Errorf("the user data has %d bytes, and clouds take %d: have the machine fetch large files", len(text), maxUserDataBytes)
	}
	return text, err
}
