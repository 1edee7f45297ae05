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
	rest.New(identityProvider()),
	rest.New(serviceToken()),
	rest.New(sshKey()),
	rest.New(organisation()),
	rest.New(member()),
	rest.New(domain()),
	rest.New(zone()),
	rest.New(zoneRecord()),
	rest.New(edge()),
	rest.New(anycastPrefix()),
	rest.New(anycastPeer()),
}

// dataSources are all data sources of the provider, one a line.
var dataSources = []func() datasource.DataSource{
	rest.NewData(infoData()),
	rest.NewData(socketData()),
	rest.NewData(socketsData()),
	rest.NewData(edgesData()),
	rest.NewData(policiesData()),
	rest.NewData(policyDocumentData()),
}

// ephemeralResources are all ephemeral resources of the provider, one a line.
var ephemeralResources = []func() ephemeral.EphemeralResource{
	rest.NewSecret(initialSecret),
	rest.NewSecret(accessToken),
	rest.NewSecret(tokenCertificate),
	rest.NewSecret(edgeToken),
	rest.NewSecret(tunnelCredential),
}

// functions are all functions of the provider, one a line.
var functions = []func() function.Function{
	newFunction(cloudInitEdge),
	newFunction(cloudInitOrigin),
	newFunction(servicesTOML),
}
