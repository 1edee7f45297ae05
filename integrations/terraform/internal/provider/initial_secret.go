package provider

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/ephemeral"
	"github.com/hashicorp/terraform-plugin-framework/ephemeral/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sallyport/sallyport/integrations/terraform/internal/client"
)

// initialSecret is the ephemeral resource sallyport_initial_secret.
type initialSecret struct{ client *client.Client }

var _ ephemeral.EphemeralResourceWithConfigure = &initialSecret{}

func newInitialSecret() ephemeral.EphemeralResource { return &initialSecret{} }

// initialSecretOf is its configuration and its result.
type initialSecretOf struct {
	ID     types.String `tfsdk:"id"`
	Secret types.String `tfsdk:"secret"`
}

// Metadata names the resource.
func (s *initialSecret) Metadata(_ context.Context, request ephemeral.MetadataRequest, response *ephemeral.MetadataResponse) {
	response.TypeName = request.ProviderTypeName + "_initial_secret"
}

// Schema describes the resource.
func (s *initialSecret) Schema(_ context.Context, _ ephemeral.SchemaRequest, response *ephemeral.SchemaResponse) {
	response.Schema = schema.Schema{
		MarkdownDescription: "The secret that control showed when this run of Terraform made an object: the credential of a `sallyport_tunnel`, or the join token of a `sallyport_edge`. In every other run it is null, since control shows a secret once. So a plan makes no new secret, and ends none that a machine uses.",
		Attributes: map[string]schema.Attribute{
			"id":     schema.StringAttribute{Required: true, MarkdownDescription: "The id of the tunnel or of the edge."},
			"secret": schema.StringAttribute{Computed: true, Sensitive: true, MarkdownDescription: "The secret, in the run that made the object; null otherwise."},
		},
	}
}

// Configure takes the client that the provider made.
func (s *initialSecret) Configure(_ context.Context, request ephemeral.ConfigureRequest, _ *ephemeral.ConfigureResponse) {
	if api, ok := request.ProviderData.(*client.Client); ok {
		s.client = api
	}
}

// Open looks whether the secret was shown in this run.
func (s *initialSecret) Open(ctx context.Context, request ephemeral.OpenRequest, response *ephemeral.OpenResponse) {
	var wanted initialSecretOf
	response.Diagnostics.Append(request.Config.Get(ctx, &wanted)...)
	if response.Diagnostics.HasError() {
		return
	}
	wanted.Secret = types.StringNull()
	if secret, ok := s.client.Kept(wanted.ID.ValueString()); ok {
		wanted.Secret = types.StringValue(secret)
	}
	response.Diagnostics.Append(response.Result.Set(ctx, wanted)...)
}
