package rest

import (
	"context"
	"errors"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/ephemeral"
	ephemeralschema "github.com/hashicorp/terraform-plugin-framework/ephemeral/schema"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/sallyport/sallyport/integrations/terraform/internal/client"
)

// Secret is an ephemeral resource: Terraform opens it in plans and in applies, and keeps nothing of it.
type Secret struct {
	Name, Noun string
	Schema     ephemeralschema.Schema
	// Open gets what is written, and returns what is made, and the path of what Close shall delete; "" for nothing.
	Open func(ctx context.Context, api *client.Client, written Object) (made Object, path string, err error)
}

// NewSecret returns the ephemeral resource.
func NewSecret(of Secret) func() ephemeral.EphemeralResource {
	return func() ephemeral.EphemeralResource { return &secret{Secret: of} }
}

type secret struct {
	Secret
	client *client.Client
}

var (
	_ ephemeral.EphemeralResourceWithConfigure = &secret{}
	_ ephemeral.EphemeralResourceWithClose     = &secret{}
)

// pathKey names the path of what Close deletes among the private data.
const pathKey = "path"

// Metadata names the ephemeral resource.
func (s *secret) Metadata(_ context.Context, request ephemeral.MetadataRequest, response *ephemeral.MetadataResponse) {
	response.TypeName = request.ProviderTypeName + "_" + s.Name
}

// Schema describes the ephemeral resource.
func (s *secret) Schema(_ context.Context, _ ephemeral.SchemaRequest, response *ephemeral.SchemaResponse) {
	response.Schema = s.Secret.Schema
}

// Configure takes the client that the provider made.
func (s *secret) Configure(_ context.Context, request ephemeral.ConfigureRequest, _ *ephemeral.ConfigureResponse) {
	s.client, _ = request.ProviderData.(*client.Client)
}

// Open makes the secret.
func (s *secret) Open(ctx context.Context, request ephemeral.OpenRequest, response *ephemeral.OpenResponse) {
	kind := s.Secret.Schema.Type().TerraformType(ctx)
	written, _ := Plain(request.Config.Raw).(Object)
	made, path, err := s.Secret.Open(ctx, s.client, written)
	if err == nil {
		response.Result.Raw, err = beside(kind, request.Config.Raw, made, func(name string) bool { return s.Secret.Schema.Attributes[name].IsComputed() })
	}
	switch {
	case path == "":
	case err == nil:
		response.Diagnostics.Append(response.Private.SetKey(ctx, pathKey, []byte(fmt.Sprintf("%q", path)))...)
	default:
		// Terraform closes only what was opened.
		if _, failed := s.client.Do(ctx, "DELETE", path, nil, nil); failed != nil {
			err = errors.Join(err, failed)
		}
	}
	failMake(&response.Diagnostics, s.Noun, err)
}

// Close deletes what the run alone needed.
func (s *secret) Close(ctx context.Context, request ephemeral.CloseRequest, response *ephemeral.CloseResponse) {
	quoted, diagnostics := request.Private.GetKey(ctx, pathKey)
	response.Diagnostics.Append(diagnostics...)
	path := ""
	if _, err := fmt.Sscanf(string(quoted), "%q", &path); err != nil || path == "" {
		return
	}
	if _, err := s.client.Do(ctx, "DELETE", path, nil, nil); err != nil && !client.IsGone(err) {
		response.Diagnostics.AddWarning("Cannot delete the "+s.Noun, Sentence(err))
	}
}

func failMake(to *diag.Diagnostics, noun string, err error) {
	if err != nil {
		to.AddError("Cannot make the "+noun, Sentence(err))
	}
}

// beside returns what is written, completed by what was found.
func beside(kind tftypes.Type, written tftypes.Value, found Object, isComputed func(string) bool) (tftypes.Value, error) {
	of, ok := kind.(tftypes.Object)
	if !ok {
		return tftypes.Value{}, fmt.Errorf("the schema is no object")
	}
	given := members(written)
	values := make(map[string]tftypes.Value, len(of.AttributeTypes))
	for name, inner := range of.AttributeTypes {
		if value, isThere := given[name]; isThere && (!value.IsNull() || !isComputed(name)) {
			values[name] = value
			continue
		}
		value, err := Value(inner, found[name])
		if err != nil {
			return tftypes.Value{}, fmt.Errorf("%s: %w", name, err)
		}
		values[name] = value
	}
	return tftypes.NewValue(kind, values), nil
}
