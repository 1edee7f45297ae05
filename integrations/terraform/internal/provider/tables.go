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
	rest.New(edge()),
	rest.New(anycastPrefix()),
	rest.New(anycastPeer()),
	rest.New(identityProvider()),
	rest.New(serviceToken()),
	rest.New(member()),
	rest.New(sshKey()),
	rest.New(organisation()),
	rest.New(domain()),
	rest.New(zone()),
	rest.New(zoneRecord()),
}

// dataSources are all data sources of the provider, one a line.
var dataSources = []func() datasource.DataSource{
	rest.NewSource(info),
	rest.NewSource(socketSource()),
	rest.NewSource(socketsSource),
	rest.NewSource(edgesSource),
	rest.NewSource(policiesSource),
	rest.NewSource(policyDocument),
}

// ephemeralResources are all ephemeral resources of the provider, one a line.
var ephemeralResources = []func() ephemeral.EphemeralResource{
	newInitialSecret,
	rest.NewSecret(accessToken),
	rest.NewSecret(edgeToken),
	rest.NewSecret(tunnelCredential),
	rest.NewSecret(serviceTokenCertificate),
}

// functions are all functions of the provider, one a line.
var functions = []func() function.Function{
	newFunction(cloudInitEdge),
	newFunction(cloudInitOrigin),
	newFunction(servicesTOML),
}
