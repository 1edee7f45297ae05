package provider

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"net/url"

	"github.com/hashicorp/terraform-plugin-framework-validators/int64validator"
	"github.com/hashicorp/terraform-plugin-framework/ephemeral"
	"github.com/hashicorp/terraform-plugin-framework/ephemeral/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sallyport/sallyport/integrations/terraform/internal/client"
	"github.com/sallyport/sallyport/integrations/terraform/internal/rest"
)

// tokenCertificate is the ephemeral resource sallyport_service_token_certificate.
type tokenCertificate struct{ client *client.Client }

var _ ephemeral.EphemeralResourceWithConfigure = &tokenCertificate{}

func newTokenCertificate() ephemeral.EphemeralResource { return &tokenCertificate{} }

// tokenCertificateOf is its configuration and its result.
type tokenCertificateOf struct {
	ServiceTokenID types.String `tfsdk:"service_token_id"`
	Days           types.Int64  `tfsdk:"days"`
	PrivateKey     types.String `tfsdk:"private_key_pem"`
	Certificate    types.String `tfsdk:"certificate_pem"`
	Authority      types.String `tfsdk:"authority_pem"`
	ValidUntil     types.String `tfsdk:"valid_until"`
}

// Metadata names the resource.
func (c *tokenCertificate) Metadata(_ context.Context, request ephemeral.MetadataRequest, response *ephemeral.MetadataResponse) {
	response.TypeName = request.ProviderTypeName + "_service_token_certificate"
}

// Schema describes the resource.
func (c *tokenCertificate) Schema(_ context.Context, _ ephemeral.SchemaRequest, response *ephemeral.SchemaResponse) {
	response.Schema = schema.Schema{
		MarkdownDescription: "A client certificate of a service token, with a new key that only this run of Terraform has. Each plan and each apply makes one; earlier ones stay valid until their ends.",
		Attributes: map[string]schema.Attribute{
			"service_token_id": schema.StringAttribute{Required: true, MarkdownDescription: "The id of the service token."},
			"days": schema.Int64Attribute{
				Optional: true, MarkdownDescription: "How long the certificate is valid; 30 when absent, 397 at most.",
				Validators: []validator.Int64{int64validator.Between(1, 397)},
			},
			"private_key_pem": schema.StringAttribute{Computed: true, Sensitive: true, MarkdownDescription: "The private key (PKCS #8, P-256)."},
			"certificate_pem": schema.StringAttribute{Computed: true, MarkdownDescription: "The certificate."},
			"authority_pem":   schema.StringAttribute{Computed: true, MarkdownDescription: "The certificate of the organisation's authority."},
			"valid_until":     schema.StringAttribute{Computed: true, MarkdownDescription: "The end of the certificate's validity."},
		},
	}
}

// Configure takes the client that the provider made.
func (c *tokenCertificate) Configure(_ context.Context, request ephemeral.ConfigureRequest, _ *ephemeral.ConfigureResponse) {
	if api, ok := request.ProviderData.(*client.Client); ok {
		c.client = api
	}
}

// Open makes a key, and has control certify it.
func (c *tokenCertificate) Open(ctx context.Context, request ephemeral.OpenRequest, response *ephemeral.OpenResponse) {
	var wanted tokenCertificateOf
	response.Diagnostics.Append(request.Config.Get(ctx, &wanted)...)
	if response.Diagnostics.HasError() {
		return
	}
	key, asked, err := keyAndRequest()
	if err != nil {
		response.Diagnostics.AddError("Cannot make a key", rest.Sentence(err))
		return
	}
	body := client.Object{"csr": asked}
	if !wanted.Days.IsNull() {
		body["days"] = wanted.Days.ValueInt64()
	}
	var made struct {
		Certificate string `json:"certificate"`
		Authority   string `json:"authority"`
		ValidUntil  string `json:"valid_until"`
	}
	path := "/v1/service-tokens/" + url.PathEscape(wanted.ServiceTokenID.ValueString()) + "/certificate"
	if _, err := c.client.Create(ctx, path, body, &made); err != nil {
		response.Diagnostics.AddError("Cannot make a certificate of the service token", rest.Sentence(err))
		return
	}
	wanted.PrivateKey, wanted.Certificate = types.StringValue(key), types.StringValue(made.Certificate)
	wanted.Authority, wanted.ValidUntil = types.StringValue(made.Authority), types.StringValue(made.ValidUntil)
	response.Diagnostics.Append(response.Result.Set(ctx, wanted)...)
}

// keyAndRequest makes a key, and a request for its certificate, in PEM.
func keyAndRequest() (key, request string, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", "", err
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return "", "", err
	}
	asked, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, private)
	if err != nil {
		return "", "", err
	}
	key = string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded}))
	request = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: asked}))
	return key, request, nil
}
