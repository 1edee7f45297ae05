package provider

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/function"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sallyport/sallyport/integrations/terraform/internal/rest"
	"github.com/sallyport/sallyport/integrations/terraform/internal/userdata"
)

// textFunction is a function that makes a text of one object.
type textFunction struct {
	name, summary, description, parameter string
	of                                    func(rest.Object) (string, error)
}

// functions are all functions of the provider, one a line.
var functions = []func() function.Function{
	textFunction{
		name: "cloud_init_edge", summary: "User data that makes a fresh machine an edge",
		description: "Returns user data for cloud-init. The machine fetches the program, compares its SHA-256, joins by the token and serves on port 443.",
		parameter:   "`token` (the join token), `program` (`url`, `sha256`), and as needed `name`, `region`, `advertise`, `anycast_allow` (prefixes; the machine gets BIRD), `environment` (more settings), `more` (further parts of user data).",
		of:          userdata.Edge,
	}.make,
	textFunction{
		name: "cloud_init_origin", summary: "User data that makes a fresh machine an origin",
		description: "Returns user data for cloud-init. The machine fetches the program, compares its SHA-256 and serves its services by `sallyport run`.",
		parameter:   "`api`, `program` (`url`, `sha256`), `services` (as in `services_toml`), and as needed `ca` (a root certificate in PEM), `token`, `environment`, `more` (further parts of user data, for the service itself).",
		of:          userdata.Origin,
	}.make,
	textFunction{
		name: "services_toml", summary: "A services file for `sallyport run`",
		description: "Returns the text of a services file. Keys are the long options of `connect`, with hyphens or underscores.",
		parameter:   "`service`: a list of services, such as `[{ name = \"shop\", port = 8000 }]`; and settings of all of them, such as `redundancy`.",
		of:          userdata.Services,
	}.make,
}

func (f textFunction) make() function.Function { return f }

// Metadata names the function.
func (f textFunction) Metadata(_ context.Context, _ function.MetadataRequest, response *function.MetadataResponse) {
	response.Name = f.name
}

// Definition describes the function.
func (f textFunction) Definition(_ context.Context, _ function.DefinitionRequest, response *function.DefinitionResponse) {
	response.Definition = function.Definition{
		Summary: f.summary, MarkdownDescription: f.description,
		Parameters: []function.Parameter{function.DynamicParameter{Name: "of", MarkdownDescription: "An object with " + f.parameter}},
		Return:     function.StringReturn{},
	}
}

// Run renders the text. It is unknown until every value of the object is known.
func (f textFunction) Run(ctx context.Context, request function.RunRequest, response *function.RunResponse) {
	var of types.Dynamic
	if response.Error = request.Arguments.Get(ctx, &of); response.Error != nil {
		return
	}
	value, err := of.UnderlyingValue().ToTerraformValue(ctx)
	if err != nil {
		response.Error = function.NewArgumentFuncError(0, err.Error())
		return
	}
	if !value.IsFullyKnown() {
		response.Error = response.Result.Set(ctx, types.StringUnknown())
		return
	}
	object, ok := rest.Plain(value).(rest.Object)
	if !ok {
		response.Error = function.NewArgumentFuncError(0, "An object is expected: "+f.name+"({ ... }).")
		return
	}
	text, err := f.of(object)
	if err != nil {
		response.Error = function.NewArgumentFuncError(0, sentenceOf(err))
		return
	}
	response.Error = response.Result.Set(ctx, text)
}
