package rest

import (
	"context"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/sallyport/sallyport/integrations/terraform/internal/client"
)

// Data describes one data source.
type Data struct {
	// Name is the type without its prefix: sockets.
	Name string
	// Noun is what messages call it: "sockets".
	Noun string
	// Schema is what users write and get.
	Schema schema.Schema
	// Read returns the values by the names of attributes; those that it leaves out are as written.
	Read func(ctx context.Context, api *client.Client, written Object) (Object, error)
}

// NewData returns the data source of a description.
func NewData(of *Data) func() datasource.DataSource {
	return func() datasource.DataSource { return &data{of: of} }
}

type data struct {
	of     *Data
	client *client.Client
}

var _ datasource.DataSourceWithConfigure = &data{}

// Metadata names the data source.
func (d *data) Metadata(_ context.Context, request datasource.MetadataRequest, response *datasource.MetadataResponse) {
	response.TypeName = request.ProviderTypeName + "_" + d.of.Name
}

// Schema describes the data source.
func (d *data) Schema(_ context.Context, _ datasource.SchemaRequest, response *datasource.SchemaResponse) {
	response.Schema = d.of.Schema
}

// Configure takes the client that the provider made.
func (d *data) Configure(_ context.Context, request datasource.ConfigureRequest, _ *datasource.ConfigureResponse) {
	if api, ok := request.ProviderData.(*client.Client); ok {
		d.client = api
	}
}

// Read asks control.
func (d *data) Read(ctx context.Context, request datasource.ReadRequest, response *datasource.ReadResponse) {
	written, _ := Plain(request.Config.Raw).(Object)
	found, err := d.of.Read(ctx, d.client, written)
	if err == nil {
		for name, value := range written {
			if _, isSaid := found[name]; !isSaid {
				found[name] = value
			}
		}
		response.State.Raw, err = Value(d.of.Schema.Type().TerraformType(ctx), found)
	}
	if err != nil {
		response.Diagnostics.AddError("Cannot read the "+d.of.Noun, Sentence(err))
	}
}

// Value returns what JSON decodes as a value of Terraform. Fields that the type does not have are left out.
func Value(kind tftypes.Type, from any) (tftypes.Value, error) {
	if from == nil {
		return tftypes.NewValue(kind, nil), nil
	}
	switch of := kind.(type) {
	case tftypes.Object:
		fields, ok := from.(Object)
		if !ok {
			return tftypes.Value{}, fmt.Errorf("control answered %s where an object is expected", sort(from))
		}
		values := make(map[string]tftypes.Value, len(of.AttributeTypes))
		for name, inner := range of.AttributeTypes {
			value, err := Value(inner, fields[name])
			if err != nil {
				return tftypes.Value{}, fmt.Errorf("%s: %w", name, err)
			}
			values[name] = value
		}
		return tftypes.NewValue(kind, values), nil
	case tftypes.Map:
		fields, ok := from.(Object)
		if !ok {
			return tftypes.Value{}, fmt.Errorf("control answered %s where a map is expected", sort(from))
		}
		values := make(map[string]tftypes.Value, len(fields))
		for name, field := range fields {
			value, err := Value(of.ElementType, field)
			if err != nil {
				return tftypes.Value{}, fmt.Errorf("%s: %w", name, err)
			}
			values[name] = value
		}
		return tftypes.NewValue(kind, values), nil
	case tftypes.List, tftypes.Set:
		items, ok := from.([]any)
		if !ok {
			return tftypes.Value{}, fmt.Errorf("control answered %s where a list is expected", sort(from))
		}
		values := make([]tftypes.Value, 0, len(items))
		for _, item := range items {
			value, err := Value(elementType(kind), item)
			if err != nil {
				return tftypes.Value{}, err
			}
			values = append(values, value)
		}
		return tftypes.NewValue(kind, values), nil
	}
	return typed(kind, from)
}
