package provider

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-validators/int64validator"
	"github.com/hashicorp/terraform-plugin-framework/ephemeral"
	"github.com/hashicorp/terraform-plugin-framework/ephemeral/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sallyport/sallyport/integrations/terraform/internal/client"
	"github.com/sallyport/sallyport/integrations/terraform/internal/rest"
)

const (
	// defaultTokenMinutes is how long a token is good at most.
	defaultTokenMinutes = 60
	// maxTokenMinutes bounds it.
	maxTokenMinutes = 1440
	// keyOfToken is where the id of the token is kept until it is deleted.
	keyOfToken = "token"
)

// accessToken is the ephemeral resource sallyport_access_token.
type accessToken struct{ client *client.Client }

var (
	_ ephemeral.EphemeralResourceWithConfigure = &accessToken{}
	_ ephemeral.EphemeralResourceWithClose     = &accessToken{}
)

func newAccessToken() ephemeral.EphemeralResource { return &accessToken{} }

// accessTokenOf is its configuration and its result.
type accessTokenOf struct {
	Name      types.String `tfsdk:"name"`
	Scopes    types.Set    `tfsdk:"scopes"`
	Minutes   types.Int64  `tfsdk:"minutes"`
	Token     types.String `tfsdk:"token"`
	ExpiresAt types.String `tfsdk:"expires_at"`
}

// Metadata names the resource.
func (a *accessToken) Metadata(_ context.Context, request ephemeral.MetadataRequest, response *ephemeral.MetadataResponse) {
	response.TypeName = request.ProviderTypeName + "_access_token"
}

// Schema describes the resource.
func (a *accessToken) Schema(_ context.Context, _ ephemeral.SchemaRequest, response *ephemeral.SchemaResponse) {
	response.Schema = schema.Schema{
		MarkdownDescription: "An API token for this run of Terraform: for a provisioner, or for another provider. Each plan and each apply makes one, and deletes it at its end. A token that could not be deleted ends by itself.",
		Attributes: map[string]schema.Attribute{
			"name":   schema.StringAttribute{Optional: true, MarkdownDescription: "The purpose of the token; `terraform` when absent."},
			"scopes": schema.SetAttribute{Required: true, ElementType: types.StringType, MarkdownDescription: "What the token may do, such as `sockets:read`. It may do no more than the token of the provider."},
			"minutes": schema.Int64Attribute{
				Optional: true, MarkdownDescription: "How long the token is good at most; 60 when absent, 1440 at most.",
				Validators: []validator.Int64{int64validator.Between(1, maxTokenMinutes)},
			},
			"token":      schema.StringAttribute{Computed: true, Sensitive: true, MarkdownDescription: "The token."},
			"expires_at": schema.StringAttribute{Computed: true, MarkdownDescription: "When it ends by itself."},
		},
	}
}

// Configure takes the client that the provider made.
func (a *accessToken) Configure(_ context.Context, request ephemeral.ConfigureRequest, _ *ephemeral.ConfigureResponse) {
	if api, ok := request.ProviderData.(*client.Client); ok {
		a.client = api
	}
}

// Open makes the token.
func (a *accessToken) Open(ctx context.Context, request ephemeral.OpenRequest, response *ephemeral.OpenResponse) {
	var wanted accessTokenOf
	response.Diagnostics.Append(request.Config.Get(ctx, &wanted)...)
	var scopes []string
	response.Diagnostics.Append(wanted.Scopes.ElementsAs(ctx, &scopes, false)...)
	if response.Diagnostics.HasError() {
		return
	}
	minutes, name := int64(defaultTokenMinutes), "terraform"
	if !wanted.Minutes.IsNull() {
		minutes = wanted.Minutes.ValueInt64()
	}
	if wanted.Name.ValueString() != "" {
		name = wanted.Name.ValueString()
	}
	end := time.Now().Add(time.Duration(minutes) * time.Minute).UTC().Format(time.RFC3339)
	var made struct {
		ID        string `json:"id"`
		Token     string `json:"token"`
		ExpiresAt string `json:"expires_at"`
	}
	if _, err := a.client.Create(ctx, "/v1/tokens", client.Object{"name": name, "scopes": scopes, "expires_at": end}, &made); err != nil {
		response.Diagnostics.AddError("Cannot make an access token", rest.Sentence(err))
		return
	}
	kept, _ := json.Marshal(made.ID)
	response.Diagnostics.Append(response.Private.SetKey(ctx, keyOfToken, kept)...)
	wanted.Token, wanted.ExpiresAt = types.StringValue(made.Token), types.StringValue(made.ExpiresAt)
	response.Diagnostics.Append(response.Result.Set(ctx, wanted)...)
}

// Close deletes the token.
func (a *accessToken) Close(ctx context.Context, request ephemeral.CloseRequest, response *ephemeral.CloseResponse) {
	kept, problems := request.Private.GetKey(ctx, keyOfToken)
	response.Diagnostics.Append(problems...)
	var id string
	if json.Unmarshal(kept, &id) != nil || id == "" {
		return
	}
	if _, err := a.client.Do(ctx, http.MethodDelete, "/v1/tokens/"+url.PathEscape(id), nil, nil); err != nil && !client.IsGone(err) {
		response.Diagnostics.AddWarning("An access token was not deleted", rest.Sentence(err)+" The token ends by itself.")
	}
}
