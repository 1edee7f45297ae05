package provider

import (
	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/ephemeral"
	"github.com/hashicorp/terraform-plugin-framework/function"
	"github.com/hashicorp/terraform-plugin-framework/resource"

	"github.com/sallyport/sallyport/integrations/terraform/internal/rest"
)

// resources are all resources of the provider, one a line.
var resources = []func() resource.Resource{
	rest.New(socket()),
	rest.New(tunnel()),
	rest.New(origin()),
	rest.New(policy()),
	rest.New(policyAttachment()),
}

// dataSources are all data sources of the provider, one a line.
var dataSources = []func() datasource.DataSource{}

// ephemeralResources are all ephemeral resources of the provider, one a line.
var ephemeralResources = []func() ephemeral.EphemeralResource{}

// functions are all functions of the provider, one a line.
var functions = []func() function.Function{}
