package provider

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/url"

	"github.com/hashicorp/terraform-plugin-framework-validators/int64validator"
	"github.com/hashicorp/terraform-plugin-framework/ephemeral/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"

	"github.com/sallyport/sallyport/integrations/terraform/internal/client"
	"github.com/sallyport/sallyport/integrations/terraform/internal/rest"
)

// tokenCertificate is the ephemeral resource sallyport_service_token_certificate.
var tokenCertificate = rest.Secret{
	Name: "service_token_certificate", Noun: "certificate of the service token",
	Schema: schema.Schema{
		MarkdownDescription: "A client certificate of a service token, with a new key that only this run of Terraform has. Each plan and each apply makes one; earlier ones stay valid until their ends.",
		Attributes: map[string]schema.Attribute{
			"service_token_id": schema.StringAttribute{Required: true, MarkdownDescription: "The id of the service token."},
			"days": schema.Int64Attribute{
				Optional: true, MarkdownDescription: "How long the certificate is valid; 30 when absent, 397 at most.",
				Validators: []validator.Int64{int64validator.Between(1, 397)},
			},
			"private_key_pem": shownSecret("The private key (PKCS #8, P-256)."),
			"certificate_pem": shown("The certificate."),
			"authority_pem":   shown("The certificate of the organisation's authority."),
			"valid_until":     shown("The end of the certificate's validity."),
		},
	},
	Open: func(ctx context.Context, api *client.Client, written rest.Object) (rest.Object, string, error) {
		key, asked, err := keyAndRequest()
		if err != nil {
			return nil, "", err
		}
		body := rest.Object{"csr": asked}
		if days := written["days"]; days != nil {
			body["days"] = days
		}
		made := rest.Object{}
		path := "/v1/service-tokens/" + url.PathEscape(fmt.Sprint(written["service_token_id"])) + "/certificate"
		if _, err := api.Create(ctx, path, body, &made); err != nil {
			return nil, "", err
		}
		return rest.Object{
			"private_key_pem": key, "certificate_pem": made["certificate"], "authority_pem": made["authority"], "valid_until": made["valid_until"],
		}, "", nil
	},
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
