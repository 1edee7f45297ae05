package rest

import (
	"context"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	dataschema "github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/ephemeral"
	ephemeralschema "github.com/hashicorp/terraform-plugin-framework/ephemeral/schema"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/sallyport/sallyport/integrations/terraform/internal/client"
)

// Source is a data source: what is written, and what a read adds. Absent fields are null.
type Source struct {
	Name, Noun string
	Schema     dataschema.Schema
	// Read gets what is written, and returns what is found. The client is nil before the provider is configured.
	Read func(ctx context.Context, api *client.Client, written Object) (Object, error)
}

// NewSource returns the data source.
func NewSource(of Source) func() datasource.DataSource {
	return func() datasource.DataSource { return &source{Source: of} }
}

type source struct {
	Source
	client *client.Client
}

var _ datasource.DataSourceWithConfigure = &source{}

// Metadata names the data source.
func (s *source) Metadata(_ context.Context, request datasource.MetadataRequest, response *datasource.MetadataResponse) {
	response.TypeName = request.ProviderTypeName + "_" + s.Name
}

// Schema describes the data source.
func (s *source) Schema(_ context.Context, _ datasource.SchemaRequest, response *datasource.SchemaResponse) {
	response.Schema = s.Source.Schema
}

// Configure takes the client that the provider made.
func (s *source) Configure(_ context.Context, request datasource.ConfigureRequest, _ *datasource.ConfigureResponse) {
	s.client, _ = request.ProviderData.(*client.Client)
}

// Read reads.
func (s *source) Read(ctx context.Context, request datasource.ReadRequest, response *datasource.ReadResponse) {
	kind := s.Source.Schema.Type().TerraformType(ctx)
	written, _ := Plain(request.Config.Raw).(Object)
	found, err := s.Source.Read(ctx, s.client, written)
	if err == nil {
		response.State.Raw, err = beside(kind, request.Config.Raw, found, func(name string) bool { return s.Source.Schema.Attributes[name].IsComputed() })
	}
	failRead(&response.Diagnostics, s.Noun, err)
}

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
	if err == nil && path != "" {
		response.Diagnostics.Append(response.Private.SetKey(ctx, pathKey, []byte(fmt.Sprintf("%q", path)))...)
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

func failRead(to *diag.Diagnostics, noun string, err error) {
	if err != nil {
		to.AddError("Cannot read the "+noun, Sentence(err))
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
		value, err := filled(inner, found[name])
		if err != nil {
			return tftypes.Value{}, fmt.Errorf("%s: %w", name, err)
		}
		values[name] = value
	}
	return tftypes.NewValue(kind, values), nil
}

// filled returns a plain value with the fields that the type has; absent ones are null, and others are left out.
func filled(kind tftypes.Type, from any) (tftypes.Value, error) {
	switch of := kind.(type) {
	case tftypes.Object:
		fields, ok := from.(Object)
		if !ok {
			return tftypes.NewValue(kind, nil), nil
		}
		values := make(map[string]tftypes.Value, len(of.AttributeTypes))
		for name, inner := range of.AttributeTypes {
			value, err := filled(inner, fields[name])
			if err != nil {
				return value, fmt.Errorf("%s: %w", name, err)
			}
			values[name] = value
		}
		return tftypes.NewValue(kind, values), nil
	case tftypes.List, tftypes.Set:
		entries, _ := from.([]any)
		values := make([]tftypes.Value, 0, len(entries))
		for _, entry := range entries {
			value, err := filled(elementType(kind), entry)
			if err != nil {
				return value, err
			}
			values = append(values, value)
		}
		return tftypes.NewValue(kind, values), nil
	case tftypes.Map:
		entries, _ := from.(Object)
		values := make(map[string]tftypes.Value, len(entries))
		for key, entry := range entries {
			value, err := filled(of.ElementType, entry)
			if err != nil {
				return value, err
			}
			values[key] = value
		}
		return tftypes.NewValue(kind, values), nil
	}
	return typed(kind, from)
}
