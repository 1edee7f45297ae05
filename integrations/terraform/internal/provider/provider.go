// Package provider is the provider of Sallyport for Terraform: its configuration, and the tables of what it has.
package provider

import (
	"context"
	"io"
	"os"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/ephemeral"
	"github.com/hashicorp/terraform-plugin-framework/function"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/provider/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sallyport/sallyport/integrations/terraform/internal/client"
	"github.com/sallyport/sallyport/integrations/terraform/internal/rest"
)

// Address is the source that configurations say. Its host is the project's own, so that no registry stands in for it.
const Address = "sallyport.dev/sallyport/sallyport"

// maxTokenFileBytes bounds the file of `token_file`.
const maxTokenFileBytes = 4096

// sallyport is the provider.
type sallyport struct{ version string }

var (
	_ provider.ProviderWithEphemeralResources = &sallyport{}
	_ provider.ProviderWithFunctions          = &sallyport{}
)

// New returns a function that makes the provider.
func New(version string) func() provider.Provider {
	return func() provider.Provider { return &sallyport{version} }
}

// settings are what a provider block has.
type settings struct {
	API          types.String `tfsdk:"api"`
	Token        types.String `tfsdk:"token"`
	TokenFile    types.String `tfsdk:"token_file"`
	CA           types.String `tfsdk:"ca"`
	Organisation types.String `tfsdk:"organisation"`
}

// Metadata names the provider.
func (p *sallyport) Metadata(_ context.Context, _ provider.MetadataRequest, response *provider.MetadataResponse) {
	response.TypeName = "sallyport"
	response.Version = p.version
}

// Schema describes the configuration.
func (p *sallyport) Schema(_ context.Context, _ provider.SchemaRequest, response *provider.SchemaResponse) {
	response.Schema = schema.Schema{
		MarkdownDescription: "The provider of [Sallyport](https://github.com/sallyport/sallyport): sockets, tunnels, policies and edges as code.",
		Attributes: map[string]schema.Attribute{
			"api": schema.StringAttribute{
				Optional:            true,
				MarkdownDescription: "The address of the API, such as `https://api.example.com`; `SALLYPORT_API` when absent.",
			},
			"token": schema.StringAttribute{
				Optional: true, Sensitive: true,
				MarkdownDescription: "An API token (`sallyport token create`); `SALLYPORT_TOKEN` when absent.",
			},
			"token_file": schema.StringAttribute{
				Optional:            true,
				MarkdownDescription: "A file with the API token, in place of `token`; `SALLYPORT_TOKEN_FILE` when absent.",
			},
			"ca": schema.StringAttribute{
				Optional:            true,
				MarkdownDescription: "A file with the root certificates to trust, in PEM; `SALLYPORT_CA`, or else those of the system, when absent.",
			},
			"organisation": schema.StringAttribute{
				Optional:            true,
				MarkdownDescription: "The organisation to act for, by name or id; `SALLYPORT_ORGANISATION`, or else that of the token, when absent.",
			},
		},
	}
}

// Configure makes the client, and asks control whether the token is good.
func (p *sallyport) Configure(ctx context.Context, request provider.ConfigureRequest, response *provider.ConfigureResponse) {
	var from settings
	response.Diagnostics.Append(request.Config.Get(ctx, &from)...)
	config, ok := p.config(from, &response.Diagnostics)
	if !ok {
		return
	}
	api, err := client.New(config)
	if err == nil {
		err = api.Check(ctx)
	}
	if err != nil {
		response.Diagnostics.AddError("Sallyport cannot be used", rest.Sentence(err))
		return
	}
	response.ResourceData = api
	response.DataSourceData = api
	response.EphemeralResourceData = api
}

// config gathers the settings of the block and of the environment.
func (p *sallyport) config(from settings, diagnostics *diag.Diagnostics) (client.Config, bool) {
	for name, value := range map[string]types.String{
		"api": from.API, "token": from.Token, "token_file": from.TokenFile, "ca": from.CA, "organisation": from.Organisation,
	} {
		if value.IsUnknown() {
			diagnostics.AddAttributeError(path.Root(name), "A setting of the provider is not known yet",
				"The value of `"+name+"` is known only after another resource is applied: apply that resource first, by `terraform apply -target`.")
		}
	}
	if !from.Token.IsNull() && !from.TokenFile.IsNull() {
		diagnostics.AddAttributeError(path.Root("token_file"), "Two tokens", "The provider has `token` and `token_file`: leave one of them out.")
	}
	if diagnostics.HasError() {
		return client.Config{}, false
	}
	config := client.Config{
		API:          orEnvironment(from.API, "SALLYPORT_API"),
		CA:           orEnvironment(from.CA, "SALLYPORT_CA"),
		Organisation: orEnvironment(from.Organisation, "SALLYPORT_ORGANISATION"),
		Version:      p.version,
	}
	if config.API == "" {
		diagnostics.AddAttributeError(path.Root("api"), "No address of the API",
			"The provider does not know where the API is: set `api`, or SALLYPORT_API, such as https://api.example.com.")
	}
	config.Token = token(from, diagnostics)
	return config, !diagnostics.HasError()
}

func token(from settings, diagnostics *diag.Diagnostics) string {
	file := from.TokenFile.ValueString()
	if file == "" && from.Token.ValueString() == "" {
		if token := os.Getenv("SALLYPORT_TOKEN"); token != "" {
			return token
		}
		file = os.Getenv("SALLYPORT_TOKEN_FILE")
	}
	if file == "" {
		if from.Token.ValueString() == "" {
			diagnostics.AddAttributeError(path.Root("token"), "No token",
				"The provider has no token: make one with `sallyport token create`, and put it into SALLYPORT_TOKEN, or into `token` or `token_file`.")
		}
		return from.Token.ValueString()
	}
	text, err := readToken(file)
	switch {
	case err != nil:
		diagnostics.AddAttributeError(path.Root("token_file"), "No token", "The file of the token cannot be read: "+err.Error()+".")
	case len(text) > maxTokenFileBytes || strings.TrimSpace(string(text)) == "":
		diagnostics.AddAttributeError(path.Root("token_file"), "No token", "The file "+file+" has no token: it shall have one line, the token.")
	}
	return strings.TrimSpace(string(text))
}

// readToken reads no more of a file than a token has.
func readToken(name string) ([]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, maxTokenFileBytes+1))
}

func orEnvironment(value types.String, name string) string {
	if value.ValueString() != "" {
		return value.ValueString()
	}
	return os.Getenv(name)
}

// Resources lists the resources.
func (p *sallyport) Resources(context.Context) []func() resource.Resource { return resources }

// DataSources lists the data sources.
func (p *sallyport) DataSources(context.Context) []func() datasource.DataSource { return dataSources }

// EphemeralResources lists the ephemeral resources.
func (p *sallyport) EphemeralResources(context.Context) []func() ephemeral.EphemeralResource {
	return ephemeralResources
}

// Functions lists the functions.
func (p *sallyport) Functions(context.Context) []func() function.Function { return functions }
